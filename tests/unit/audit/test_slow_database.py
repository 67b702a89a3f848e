"""The writer of a node's audit has lines on record in time, also where the database is slow."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from app.audit.recorder import Audit
from app.audit.writer import AuditWriter
from app.core.audit.chain import ChainHead, Verifier
from app.core.audit.lines import things_of
from app.store.audit import StoredLine
from tests.unit.assembly import ManualClock
from tests.unit.audit.test_recorder import Store, registration
from tests.waiting import eventually


class SlowStore(Store):
    """A store whose replies come when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.asked = asyncio.Event()

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        self.asked.set()
        await self.let.wait()
        await super().append(lines, facts)


async def test_while_the_database_is_slow_what_is_told_goes_to_the_disk(tmp_path: Path) -> None:
    """A node that is killed then loses no more than one that is killed while the database is quick."""
    store, counters = SlowStore(), Counter[str]()
    writer = AuditWriter(store, counters, tmp_path, slow=timedelta(milliseconds=1))
    audit = Audit(writer, ManualClock(), counters, commands=True, required=False)
    audit.begin("node-1/a", lambda _: ("ci", "2F7QW9ZD"), lambda _: "air")

    def on_disk() -> list[str]:
        (file,) = tmp_path.iterdir()
        return [f"c{number}" for number in range(4) if f'"c{number}"'.encode() in file.read_bytes()]

    for number in range(2):
        audit.registered(registration(f"c{number}"), 0.0)
    writing = asyncio.ensure_future(audit._write())
    await store.asked.wait()
    for number in range(2, 4):
        audit.registered(registration(f"c{number}"), 0.0)
    await eventually(lambda: on_disk() == ["c0", "c1", "c2", "c3"])
    assert store.lines == {}
    store.let.set()
    await writing
    audit.registered(registration("last"), 0.0)
    await audit.close()
    assert [one["command"] for one in store.told] == ["c0", "c1", "c2", "c3", "last"]
    verifier = Verifier("node-1/a")
    assert [fault for _, line in sorted(store.lines.items()) for fault in verifier.read(line)] == []
    assert list(tmp_path.iterdir()) == []
    assert counters["audit.written"] == 5


async def test_heads_that_take_long_keep_no_line_waiting() -> None:
    asked = asyncio.Event()

    class MuteHeads(Store):
        async def heads(self) -> Sequence[tuple[ChainHead, int]]:
            asked.set()
            await asyncio.Event().wait()
            return []

    store, counters = MuteHeads(), Counter[str]()
    audit = Audit(AuditWriter(store, counters, None), ManualClock(), counters, commands=True, required=False)
    audit.gap_seconds = audit.heads_seconds = 0.001
    audit.begin("node-1/a", lambda _: ("ci", "2F7QW9ZD"), lambda _: "air")
    running = asyncio.ensure_future(audit.run())
    await asked.wait()
    audit.registered(registration("c1"), 0.0)
    await eventually(lambda: [one["command"] for one in store.told] == ["c1"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class TimedStore(Store):
    """A store whose calls take as long as is said, by the clock of the test."""

    def __init__(self, clock: ManualClock, taken: float, pass_time: Callable[[float], Awaitable[None]]) -> None:
        super().__init__()
        self._clock, self._taken, self._pass_time = clock, taken, pass_time
        self.gaps: list[float] = []
        """The time for which the first fact of each call had waited."""

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        self.calls.append(len(lines))
        await self._pass_time(self._taken)
        oldest = things_of(json.loads(lines[0].line.body))[0]
        self.gaps.append(self._clock.wall() - oldest["at"] / 1_000_000)


@pytest.mark.parametrize("taken", [0.0, 0.01, 0.1, 0.2, 0.24])
async def test_what_is_told_is_on_record_half_a_second_later(taken: float) -> None:
    """As long as the database is no slower; while it is quick, lines are not written more often than that needs."""
    clock, numbers = ManualClock(), itertools.count()

    async def pass_time(seconds: float) -> None:
        until = clock.now + seconds
        while clock.now < until:
            clock.now = min(until, clock.now + 0.005)
            timed.registered(registration(f"c{next(numbers)}"), 0.0)
        if clock.now > 1020:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    store, counters = TimedStore(clock, taken, pass_time), Counter[str]()
    writer = AuditWriter(store, counters, None)
    timed = Audit(writer, clock, counters, commands=True, required=False, sleep=pass_time)
    timed.begin("node-1/a", lambda _: ("ci", "2F7QW9ZD"), lambda _: "air")
    with suppress(asyncio.CancelledError):
        await timed._keep_writing()
    assert len(store.gaps) > 40
    assert max(store.gaps[2:]) <= 0.5  # the first ones show how long a call takes
    assert len(store.calls) <= 20 / max(0.45 - taken, taken) + 1
