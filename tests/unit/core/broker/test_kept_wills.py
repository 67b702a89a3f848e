"""Wills of clients that were connected when their broker was killed, or stopped in order."""

from __future__ import annotations

from app.core.broker.codes import ReasonCode
from app.core.broker.packets import (
    Disconnect,
    Publish,
    WillMessage,
)
from tests.unit.core.broker.kept import KeptBench
from tests.unit.core.broker.peers import payloads, properties
from tests.unit.core.broker.test_kept import durable


def test_a_clock_that_has_stepped_back_delays_no_will_and_no_end_of_a_session() -> None:
    bench = KeptBench()
    late = WillMessage("w", b"gone", 1, properties=properties(WILL_DELAY_INTERVAL=60))
    durable(bench, "away", will=late, expiry=3600).drop()
    bench.clock.ahead -= 86_400
    bench.kill()
    watcher = bench.connected("watcher")
    watcher.subscribe("w")
    bench.pass_seconds(50)
    assert watcher.hear() == []
    bench.pass_seconds(15)
    assert watcher.only(Publish).payload == b"gone"
    assert "away" in bench.broker.sessions
    bench.pass_seconds(3600)
    assert "away" not in bench.broker.sessions


def test_a_crash_publishes_the_wills_of_all_who_were_there_once() -> None:
    bench = KeptBench()
    will = WillMessage("will", b"now", 1, retain=True)
    watcher = durable(bench, "watcher")
    watcher.subscribe("will")
    watcher.drop()
    bench.connected("clean", will=will)
    durable(bench, "good", will=will).say(Disconnect())
    durable(bench, "with delay", will=WillMessage("will", b"later", 1, properties=properties(WILL_DELAY_INTERVAL=30)))
    for _ in range(3):
        bench.kill()
    bench.pass_seconds(31)
    bench.kill()
    watcher = durable(bench, "watcher")
    assert payloads(watcher.hear()) == [b"now", b"later"]
    assert "clean" not in bench.broker.sessions
    assert payloads(bench.connected("new").subscribe("will")) == [b"now"]


def test_a_delay_that_has_passed_while_the_broker_was_down_is_over() -> None:
    bench = KeptBench()
    watcher = durable(bench, "watcher")
    watcher.subscribe("will")
    will = WillMessage("will", b"gone", 1, properties=properties(WILL_DELAY_INTERVAL=30))
    durable(bench, "dock", will=will).drop()
    durable(bench, "short", expiry=20).drop()
    bench.kill(down=60)
    assert payloads(durable(bench, "watcher").hear()) == [b"gone"]
    assert "short" not in bench.broker.sessions


def test_an_orderly_stop_publishes_nothing_and_ends_no_session() -> None:
    bench = KeptBench()
    watcher = durable(bench, "watcher")
    watcher.subscribe("will")
    dock = durable(bench, "dock", will=WillMessage("will", b"gone", 1))
    dock.subscribe("t")
    bench.broker.stop()
    bench.sync()
    assert [type(one) for one in watcher.hear()] == [Disconnect]
    assert dock.only(Disconnect).reason is ReasonCode.SERVER_SHUTTING_DOWN
    bench.kill()
    back = durable(bench, "watcher")
    assert payloads(back.hear()) == [b"gone"], "they were not asked before the start"
    assert durable(bench, "dock").connack.session_present
