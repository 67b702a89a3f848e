"""Mutated packets end in a reason or in the end of their connection, and nobody else notices."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from structlog.testing import capture_logs

from homing_rig.fuzz.machine import FuzzRun
from homing_rig.fuzz.packets import PacketMaker
from tests.conformance.conftest import Bench
from tests.conformance.raw import PUBACK, PUBLISH, V3, V5, RawClient, ack

CONVERSATIONS = 300


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_packets_end_in_a_reason_or_the_end(seed: int) -> None:
    """The first of the million that `python -m homing_rig.fuzz` feeds to the broker without sockets."""
    run = FuzzRun(seed)
    run.run(10_000)
    run.finish()
    result = run.result
    assert result.witnessed >= 10
    assert result.packets > 3 * result.conversations, "most are refused, so the packets behind CONNECT are not tried"
    assert {"MALFORMED_PACKET", "PROTOCOL_ERROR", "closed", "went on", "TOPIC_ALIAS_INVALID"} <= result.outcomes.keys()


def test_the_same_seed_makes_the_same_packets() -> None:
    def packets(seed: int) -> list[bytes]:
        maker = PacketMaker(Random(seed))
        return [packet for _ in range(50) for packet in maker.conversation()[1]]

    assert packets(3) == packets(3) != packets(4)


def test_a_client_beside_that_is_disturbed_is_found() -> None:
    run = FuzzRun(1)
    run.broker.subscriptions.remove("witness-reader", "witness/+/here")
    with pytest.raises(AssertionError, match="the subscriber beside heard"):
        run.run(2_000)


class StubbornClient(RawClient):
    """Says what it has to say, whether it is heard or not."""

    def say(self, packets: list[bytes]) -> None:
        try:
            for one in packets:
                self.send(one)
            self._socket.shutdown(1)
            while self._socket.recv(65_536):
                pass
        except OSError:
            pass  # the broker has closed
        self.drop()


def test_mutated_packets_over_sockets_disturb_nobody(bench: Bench, name: str) -> None:
    reader, writer = bench.join(version=V3), bench.join(version=V5)
    reader.subscribe(f"{name}/+")
    maker, said = PacketMaker(Random(5)), 0
    with capture_logs() as logs:
        for number in range(CONVERSATIONS):
            packets = list(islice(maker.conversation()[1], 60))
            said += len(packets)
            StubbornClient(bench.running.port).say(packets)
            if number % 10 == 0:
                writer.publish(f"{name}/{number}", b"%d" % number)
                message = reader.next(PUBLISH)
                assert (message.payload, message.qos, message.dup) == (b"%d" % number, 1, False)
                reader.send(ack(PUBACK, message.packet_id))
    assert said > 3_000
    assert [one for one in logs if one["log_level"] not in ("debug", "info")] == [], "who sends rubbish fills no log"
    assert reader.settle() == writer.settle() == []
