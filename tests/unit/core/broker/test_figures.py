"""Figures of a broker below `$SYS/`: told every ten seconds to who subscribes, and kept nowhere."""

from __future__ import annotations

import pytest

from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.figures import JUMP_SECONDS, BrokerFigures
from app.core.broker.packets import Packet, Publish, PublishAck
from tests.unit.core.broker.kept import KeptBench


def told(packets: list[Packet]) -> dict[str, str]:
    said = [one for one in packets if isinstance(one, Publish)]
    assert {one.qos for one in said} <= {0}
    return {one.topic.removeprefix("$SYS/broker/"): one.payload.decode() for one in said}


def test_figures_are_retained_and_told_again_when_they_change() -> None:
    bench = KeptBench()
    figures = BrokerFigures(bench.broker, "homing 1.2.3")
    bench.counters |= {"broker.received": 7, "broker.sent_bytes": 90, "broker.dropped.expired": 2}
    bench.counters["broker.dropped.queue_full"] = 3
    reader = bench.connected("reader")
    bench.connected("other").drop()
    figures.tick()
    seen = told(reader.subscribe("$SYS/#"))
    assert seen == {
        "version": "homing 1.2.3",
        "uptime": "0 seconds",
        "clients/connected": "1",
        "clients/total": "1",
        "clients/maximum": "1",
        "messages/received": "7",
        "messages/sent": "0",
        "bytes/received": "0",
        "bytes/sent": "90",
        "publish/messages/dropped": "5",
        "retained messages/count": "0",
        "subscriptions/count": "0",
        "store/messages/bytes": "0",
    }
    bench.clock.now += 9.9
    figures.tick()
    assert told(reader.hear()) == {}
    bench.clock.now += 0.1
    figures.tick()
    changed = {"uptime": "10 seconds", "messages/sent": "13", "retained messages/count": "13"}
    assert told(reader.hear()) == changed | {"subscriptions/count": "1"}
    assert told(reader.subscribe("#")) == {}, "[MQTT-4.7.2-1]"
    assert bench.keys("tm") == [], "no disk is written for them"
    bench.kill()
    assert told(bench.connected("reader").subscribe("$SYS/#")) == {}


def test_nobody_publishes_there() -> None:
    bench = KeptBench()
    (said,) = bench.connected().publish("$SYS/broker/version", b"mine", 1)
    assert not isinstance(said, PublishAck) or said.type is not PacketType.PUBACK
    assert bench.counters[f"broker.refused.{ReasonCode.TOPIC_NAME_INVALID.name.lower()}"] == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_jumps_is_told_until_it_is_back(sign: int) -> None:
    bench = KeptBench()
    figures = BrokerFigures(bench.broker, "homing 1.2.3")
    reader = bench.connected("reader")
    reader.subscribe("$SYS/broker/clock/jump")

    def told_after(ahead: float) -> list[str]:
        bench.clock.now += 10
        bench.clock.ahead = ahead
        figures.tick()
        return list(told(reader.hear()).values())

    assert told_after(sign * (JUMP_SECONDS - 1)) == [], "NTP may do as much"
    assert told_after(sign * JUMP_SECONDS) == [f"{sign * JUMP_SECONDS} seconds"]
    assert told_after(sign * JUMP_SECONDS) == []
    assert told_after(0) == [""]
