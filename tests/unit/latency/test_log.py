"""The log itself: bounded, harmless, and honest about what it drops."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from app.callbacks.pending import Pending
from app.core.errors import ConfigurationError, StoreUnavailableError
from app.latency import log as log_module
from app.latency.factory import open_log
from app.latency.log import IntervalResult, LatencyLog
from app.latency.record import Closed, Row, WriteError
from app.settings import LatencySettings
from tests.unit.assembly import ManualClock
from tests.waiting import eventually


class Recorder:
    """Keeps what it gets; fails when told to, and waits at the gate."""

    def __init__(self) -> None:
        self.kept = 0
        self.open = 0
        self.offsets: list[float | None] = []
        self.fail: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def add(self, closed: Sequence[Closed], rows: Sequence[Row], offset: float | None) -> int:
        assert self.gate.wait(10)
        if self.fail is not None:
            raise self.fail
        self.open += len(closed) + len(rows)
        self.offsets.append(offset)
        return self.open

    def finish(self) -> IntervalResult:
        if self.fail is not None:
            raise self.fail
        finished, self.kept, self.open = IntervalResult(1, self.open), self.kept + self.open, 0
        return finished


class Log:
    """A log on a recorder."""

    def __init__(self, buffer: int = 1000, tick: float = log_module.TICK_SECONDS) -> None:
        self.clock = ManualClock()
        self.counters: Counter[str] = Counter()
        self.recorder = Recorder()
        self.times = 0
        self.log = LatencyLog(
            self.recorder,
            clock=self.clock,
            store_now=self._now,
            interval=timedelta(minutes=1),
            buffer=buffer,
            counters=self.counters,
            tick=tick,
        )

    async def _now(self) -> int:
        self.times += 1
        if self.times == 1:
            raise StoreUnavailableError("away")
        return 5_000_000_000

    def take(self, count: int) -> None:
        for _ in range(count):
            self.log.closed(Pending(0.0))

    async def turn(self) -> None:
        """Do what `run` does with each chunk."""
        await self.log._hand_over()


@pytest.fixture
def rig() -> Log:
    return Log()


async def test_records_are_handed_over_in_chunks_and_counted_when_their_file_is_there() -> None:
    rig = Log(buffer=10_000)
    running = asyncio.create_task(rig.log.run())
    rig.take(log_module.CHUNK)
    await eventually(lambda: rig.recorder.open == log_module.CHUNK)
    assert rig.counters["latency.records"] == 0
    running.cancel()
    rig.take(3)
    await rig.log.close()
    assert rig.recorder.kept == log_module.CHUNK + 3
    assert (rig.counters["latency.files"], rig.counters["latency.records"]) == (1, log_module.CHUNK + 3)


async def test_an_interval_ends_with_time() -> None:
    rig = Log(tick=0.001)
    running = asyncio.create_task(rig.log.run())
    rig.take(1)
    await eventually(lambda: rig.recorder.open == 1)
    assert rig.counters["latency.files"] == 0
    rig.clock.advance(60)
    await eventually(lambda: rig.counters["latency.files"] == 1)
    rig.clock.advance(60)
    await asyncio.sleep(0.02)
    assert rig.counters["latency.files"] == 1  # no file without records
    running.cancel()
    await rig.log.close()


async def test_an_interval_ends_early_when_memory_fills_up() -> None:
    rig = Log(tick=0.001)
    running = asyncio.create_task(rig.log.run())
    rig.take(500)
    await eventually(lambda: rig.counters["latency.files"] == 1)
    running.cancel()
    await rig.log.close()


async def test_the_buffer_is_bounded_while_the_disk_hangs(rig: Log) -> None:
    rig.recorder.gate.clear()
    rig.take(700)
    handing = asyncio.create_task(rig.turn())
    await asyncio.sleep(0)
    rig.take(400)
    for _ in range(400):
        rig.log.row({})
    assert rig.log.fills() == {"latency_records": (1000, 1000)}
    assert rig.counters["latency.dropped_full_buffer"] == 100 + 400
    rig.recorder.gate.set()
    await handing
    await rig.log.close()
    assert rig.recorder.kept == 1000


async def test_a_burst_of_duplicates_leaves_room_for_outcomes(rig: Log) -> None:
    for _ in range(10_000):
        rig.log.row({})
    rig.take(600)
    assert rig.counters["latency.dropped_full_buffer"] == 10_000 - 250
    await rig.log.close()
    assert rig.recorder.kept == 850


async def test_what_hangs_does_not_keep_the_node_from_stopping(rig: Log) -> None:
    rig.recorder.gate.clear()
    rig.take(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await rig.log.close()
    rig.recorder.gate.set()


async def test_a_failure_stops_the_log_for_a_while_and_then_it_goes_on(rig: Log) -> None:
    rig.recorder.fail = WriteError("No space left on device", 7)
    rig.take(3)
    await rig.turn()
    assert rig.counters == {"latency.write_failures": 1, "latency.dropped_write_failed": 7}
    rig.recorder.fail = None
    rig.clock.advance(59)
    rig.take(2)
    await rig.turn()
    assert rig.counters["latency.dropped_write_failed"] == 9
    assert rig.recorder.open == 0
    rig.clock.advance(1)
    rig.take(2)
    await rig.turn()
    assert rig.recorder.open == 2
    await rig.log.close()
    assert rig.counters["latency.records"] == 2
    assert rig.log.fills() == {"latency_records": (0, 1000)}


async def test_further_failures_are_tried_again_less_and_less_often(rig: Log) -> None:
    rig.recorder.fail = WriteError("", 1)
    pauses = []
    for _ in range(8):
        rig.take(1)
        await rig.turn()
        pauses.append(rig.log._retry_at - rig.clock.now)
        rig.clock.advance(pauses[-1])
    assert pauses == [60, 120, 240, 480, 600, 600, 600, 600]
    rig.recorder.fail = None
    await rig.log.close()


async def test_a_mistake_of_ours_stops_the_log_and_not_the_node(rig: Log) -> None:
    rig.recorder.fail = TypeError("a mistake")
    rig.take(3)
    await rig.turn()
    assert rig.counters == {"latency.write_failures": 1, "latency.dropped_write_failed": 3}
    rig.recorder.fail = None
    await rig.log.close()


async def test_the_store_is_asked_for_its_time_where_no_reply_tells_it() -> None:
    rig = Log(tick=0.001)
    running = asyncio.create_task(rig.log.run())
    await eventually(lambda: rig.log.store_clock.offset is not None)
    assert rig.times == 2  # the first time it was away
    assert rig.log.store_clock.store_time(rig.clock.now) == 5_000_000_000
    await asyncio.sleep(0.02)
    assert rig.times == 2
    rig.clock.advance(16)
    await eventually(lambda: rig.times == 3)
    running.cancel()
    await rig.log.close()


async def test_registrations_tell_the_store_time(rig: Log) -> None:
    for round_trip in (0.5, 0.002, 0.1):
        one = Pending(rig.clock.now)
        one.registered_at = rig.clock.now + round_trip
        one.created_us = round((rig.clock.now + round_trip / 2) * 1e6) + 7_000_000
        rig.log.closed(one)
    taken_up = Pending(rig.clock.now)
    rig.log.closed(taken_up)
    await rig.turn()
    assert rig.recorder.offsets == [7_000_000]
    await rig.log.close()


def test_it_is_off_where_no_folder_is_named() -> None:
    assert opened(LatencySettings()) is None


def test_without_pyarrow_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> object:
        if name.startswith("app.latency.files"):
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError) as caught:
        opened(LatencySettings(log_dir="x"))
    assert str(caught.value) == (
        "HOMING_LATENCY_LOG_DIR: the log needs pyarrow, which is not installed: pip install 'homing[latency]'"
    )


def opened(settings: LatencySettings) -> LatencyLog | None:
    async def now() -> int:
        return 0

    return open_log(settings, node_id="n1", incarnation="i", clock=ManualClock(), store_now=now, counters=Counter())
