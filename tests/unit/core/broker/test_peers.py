"""Clients of one address take only so many connections, and connect only so often."""

from __future__ import annotations

import pytest

from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.connection import BrokerConnection
from app.core.broker.packets import Connack, Connect
from tests.unit.core.broker.peers import V3, V5, BrokerBench, Peer


class CrowdedBench(BrokerBench):
    """A broker whose clients come from the address `peer`."""

    peer_name = "10.0.0.1"

    def open(self, peer: Peer) -> BrokerConnection:
        return self.broker.open(peer, self.peer_name)


@pytest.mark.parametrize("version", [V3, V5])
def test_a_peer_that_connects_too_often_is_told_so(version: ProtocolVersion) -> None:
    bench = CrowdedBench(connects_per_peer=2)

    def told() -> ReasonCode:
        peer = bench.peer(version)
        (said,) = peer.say(Connect(version, "x", clean_start=True))
        assert isinstance(said, Connack)
        assert peer.closed is (said.reason is not ReasonCode.SUCCESS)
        return said.reason

    refused = ReasonCode.CONNECTION_RATE_EXCEEDED if version is V5 else ReasonCode.SERVER_UNAVAILABLE
    assert [told() for _ in range(3)] == [ReasonCode.SUCCESS, ReasonCode.SUCCESS, refused]
    assert bench.counters["broker.refused.connection_rate_exceeded"] == 1
    bench.peer_name = "10.0.0.2"
    assert told() is ReasonCode.SUCCESS, "another one may"
    bench.peer_name = ""
    assert [told() for _ in range(5)] == [ReasonCode.SUCCESS] * 5
    bench.peer_name = "10.0.0.1"
    assert told() is refused
    bench.clock.now += 0.5
    assert [told() for _ in range(2)] == [ReasonCode.SUCCESS, refused]


def test_a_peer_is_full_until_one_of_its_connections_ends() -> None:
    bench = CrowdedBench(connections_per_peer=2)
    peers = bench.broker.peers
    first = bench.connected("a")
    assert not peers.full("10.0.0.1")
    bench.connected("b")
    assert peers.full("10.0.0.1")
    assert not peers.full("10.0.0.2")
    assert not peers.full("")
    first.drop()
    first.drop()
    assert not peers.full("10.0.0.1")
