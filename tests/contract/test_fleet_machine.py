"""Random histories of fleet runs in memory and in a folder, whose process ends in between: both must agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.core.fleets.ids import new_run_id
from app.store.fleets import FleetStore, NewRecord, RunChange, Written
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock, RocksBackend

T = TypeVar("T")
LEASE = timedelta(seconds=5)
DRIVERS = ("node-a s1", "node-a s2", "node-b s3")
TARGETS = [["dock-1", "dji"], ["döck%20-2", "homing"], ["dock-3", "dji"]]

which_run = st.integers(0, 99)
all_marks = st.sampled_from([b"...", b"h..", b"hs\n", b"\xff\x00f"])
notes = st.dictionaries(st.integers(0, 2), st.sampled_from([[17, "ünder", ""], [18, None, "no GPS"], []]))


@dataclass
class Stage:
    runner: asyncio.Runner
    folder: Path
    restarts: int = 0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        yield Stage(runner, tmp_path)


class Histories(RuleBasedStateMachine):
    """Every rule is one step on both sides. `which` chooses among the runs so far, also those that are gone."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.clock = ManualClock()
        self.memory = MemoryStateStore(self.clock)
        self.rocks = RocksBackend(Path(mkdtemp(dir=stage.folder)), lambda _: None, self.clock)
        stage.runner.run(self.rocks.open())
        self.numbers = count(1)
        self.made: list[str] = []
        self.known: dict[str, int] = {}
        """The version that was read last."""
        self.epochs: dict[str, int] = {}

    def teardown(self) -> None:
        self.stage.runner.run(self.rocks.close())

    def both(self, step: Callable[[FleetStore], Awaitable[T]]) -> T:
        self.clock.now += 0.001

        async def taken(store: FleetStore) -> T:
            return await step(store)

        expected = self.stage.runner.run(taken(self.memory.fleets))
        assert self.stage.runner.run(taken(self.rocks.store.fleets)) == expected
        return expected

    def chosen(self, which: int) -> str:
        return self.made[which % len(self.made)] if self.made else new_run_id(f"01J{0:023d}")

    @rule(again=st.booleans(), which=which_run, hours=st.integers(1, 72))
    def create(self, which: int, hours: int, *, again: bool) -> None:
        run_id = self.chosen(which) if again else new_run_id(f"01J{next(self.numbers):023d}")
        record = NewRecord(
            run_id=run_id,
            fingerprint=f"f{hours}",
            plan={"method": "ok", "params": {"n": 2**70, "text": "\ud800"}},
            status={"state": "waiting"},
            marks=b"...",
            targets=TARGETS,
            lasts=timedelta(hours=hours),
        )
        self.both(lambda store: store.create(record))
        if run_id not in self.made:
            self.made.append(run_id)
        self.known[run_id] = 1

    @rule(
        which=which_run, marks=all_marks, results=notes, late=st.booleans(), ended=st.booleans(), drives=st.booleans()
    )
    def write(
        self, which: int, marks: bytes, results: dict[int, list[Any]], *, late: bool, ended: bool, drives: bool
    ) -> None:
        run_id = self.chosen(which)
        change = RunChange(
            version=self.known.get(run_id, 1) - late,
            status={"state": "running", "steps": [[1, "running", "time", "", ""]]},
            marks=marks,
            results=results,
            epoch=self.epochs.get(run_id, 1) if drives else None,
            ended=ended,
        )
        if self.both(lambda store: store.write(run_id, change)) is Written.YES:
            self.known[run_id] = change.version + 1

    @rule(which=which_run, holder=st.sampled_from(DRIVERS), gone=st.sampled_from(["", "node-a "]))
    def drive(self, which: int, holder: str, gone: str) -> None:
        run_id = self.chosen(which)
        self.epochs[run_id] = self.both(lambda store: store.drive(run_id, holder, LEASE, gone)) or 1

    @rule(which=which_run, holder=st.sampled_from(DRIVERS))
    def let_go(self, which: int, holder: str) -> None:
        self.both(lambda store: store.let_go(self.chosen(which), holder))

    @rule(seconds=st.sampled_from([1, 6, 3600, 86_400, 5 * 86_400]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def restart(self) -> None:
        """All that there is lies in the folder, apart from leases."""
        self.stage.restarts += 1
        self.stage.runner.run(self.rocks.again())
        for run_id in self.made:
            for holder in DRIVERS:
                self.stage.runner.run(self.memory.fleets.let_go(run_id, holder))

    @invariant()
    def the_runs_agree(self) -> None:
        self.both(self.all_of)

    async def all_of(self, store: FleetStore) -> list[Any]:
        """All that can be read. The instant at which a run began may be a microsecond off after a restart."""
        found: list[Any] = [await store.open_runs(), *(replace(one, created_at=0) for one in await store.runs())]
        for run_id in self.made:
            record = await store.read(run_id)
            found += [record and replace(record, created_at=0), list(await store.targets(run_id))]
            found += await store.results(run_id, [2, 0, 1])
        return found


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long)])
def test_random_histories_agree(part: int, stage: Stage) -> None:
    class OnStage(Histories):
        def __init__(self) -> None:
            super().__init__(stage)

    run_state_machine_as_test(
        OnStage,
        settings=settings(
            max_examples=12 if part == 1 else 300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    assert stage.restarts >= 10
