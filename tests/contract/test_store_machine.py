"""Random histories, run on a plain model, all stores and two nodes' views of one Redis: all must agree (R22)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.core import keys
from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.identifiers import partition_of, partition_of_command
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.profiles.probes import ProbeFinding
from app.store.commands import Query
from app.store.memory.commands.store import MemoryStateStore
from app.store.rules import NO_RESPONSE
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, ManualClock, RocksBackend, answer, registration
from tests.contract.store_model import Model
from tests.contract.store_rows import FAR_AHEAD, Plain
from tests.contract.store_stage import (
    DEVICES,
    HOUR,
    MOST_STEPS,
    SOON,
    STEPS,
    Stage,
    all_pages,
    answers,
    devices,
    ends,
    findings,
    lanes,
    nodes,
    places,
    stage,
    texts,
    with_gone,
)

__all__ = ["stage"]  # a fixture


class Histories(RuleBasedStateMachine):
    """Every rule is one step on all sides. `which` chooses among the commands so far, also those that are gone."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.clock = ManualClock()
        self.memory = MemoryStateStore(self.clock)
        self.rocks = RocksBackend(Path(mkdtemp(dir=stage.folder)), lambda _: None, self.clock)
        self.stage.runner.run(self.rocks.open())
        self.model = Model()
        self.made: list[Registration] = []
        self.soon: set[str] = set()
        self.turn = 0

    @initialize()
    def empty(self) -> None:
        self.stage.run(self.stage.client.flushall())

    def agreed(self, expected: Plain, step: Callable[[StateStore], Awaitable[Any]]) -> None:
        """Take the step on both stores, on Redis through its nodes in turn."""
        self.clock.now += 0.001
        self.turn += 1
        assert self.stage.run(step(self.memory)) == expected, "memory"
        assert self.stage.run(step(self.rocks.store)) == expected, "rocks"
        assert self.stage.run(step(self.stage.redis[self.turn % 2])) == expected, "redis"

    def teardown(self) -> None:
        self.stage.runner.run(self.rocks.close())

    def chosen(self, which: int) -> Registration:
        return self.made[which % len(self.made)]

    @rule(data=st.data(), device=devices, home=nodes, soon=st.booleans(), quarantine=st.booleans())
    def register(self, data: st.DataObject, device: str, home: str, *, soon: bool, quarantine: bool) -> None:
        new = registration(
            device,
            *data.draw(places(device)),
            home=home,
            timeout=SOON if soon else MINUTE,
            quarantine=MINUTE if quarantine else timedelta(),
            key=data.draw(st.sampled_from([None, None, None, "k1", "k2"])),
            fingerprint=data.draw(st.sampled_from(["f", "f", "f", "g"])),
            lane=(lane := data.draw(lanes)),
            waits=None if lane is None else data.draw(st.sampled_from([None, HOUR, HOUR])),
        )
        self.made.append(new)
        if soon:
            self.soon.add(new.command_id)
        self.agreed(self.model.register(new), lambda store: store.register(new))

    @rule(data=st.data(), device=devices, home=nodes, quarantine=st.booleans())
    def hold(self, data: st.DataObject, device: str, home: str, *, quarantine: bool) -> None:
        wanted = registration(
            device,
            *data.draw(places(device)),
            home=home,
            quarantine=MINUTE if quarantine else timedelta(),
            key=data.draw(st.sampled_from([None, None, "k1"])),
            fingerprint="f",
            held=HOUR,
            lane=data.draw(lanes),
            not_before=data.draw(st.sampled_from([None, None, None, 1, FAR_AHEAD])),
            approval=data.draw(st.sampled_from([None, None, HOUR])),
            replaces=data.draw(st.sampled_from(["", "", "cover", "lamp"])),
        )
        self.made.append(wanted)
        self.agreed(self.model.register(wanted), lambda store: store.register(wanted))

    def held_one(self, which: int) -> str:
        held = [one for one in self.made if one.hold is not None]
        return (held[which % len(held)] if held else self.chosen(which)).command_id

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), node=nodes, approves=st.booleans(), name=st.sampled_from(["anna", "ben"]))
    def decide(self, which: int, node: str, name: str, *, approves: bool) -> None:
        identity, decision = self.held_one(which), ApprovalDecision(approves, "", name)
        self.agreed(self.model.decide(identity, decision), lambda store: store.decide(identity, decision, node))

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), node=nodes, attempt=st.integers(0, 3), forgets=st.booleans())
    def claim(self, which: int, node: str, attempt: int, *, forgets: bool) -> None:
        """Claim one; where Redis forgets that, it does so at once, and is told of it."""
        claim = self.held_one(which), node, f"{node} {attempt}"
        self.agreed(self.model.claim(*claim), lambda store: self.stage.claim(store, *claim, forgets=forgets))

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), node=nodes, attempt=st.integers(0, 3), known=st.booleans())
    def give_back(self, which: int, node: str, attempt: int, *, known: bool) -> None:
        identity, token = self.held_one(which), f"{node} {attempt}"
        if known and identity in self.model.rows:
            token = self.model.rows[identity].token
        self.agreed(self.model.give_back(identity, token), lambda store: store.give_back(identity, token))

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), home=nodes)
    def join(self, which: int, home: str) -> None:
        """Somebody asks for the same under the same key, on another node."""
        same = self.chosen(which)
        again = replace(registration(same.device_id), home_node=home, expectations=same.expectations)
        again = replace(again, idempotency_key=same.idempotency_key or "k3", fingerprint=same.fingerprint)
        self.made.append(again)
        self.agreed(self.model.register(again), lambda store: store.register(again))

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999))
    def register_again(self, which: int) -> None:
        """The reply was lost. Once the record is gone the same step is simply a registration."""
        same = self.chosen(which)
        if same.command_id in self.model.rows:
            self.agreed(self.model.register(same), lambda store: store.register(same))

    @precondition(lambda self: self.made)
    @rule(
        which=st.integers(0, 999),
        place=st.integers(0, 3),
        state=answers,
        texts=st.tuples(texts, texts),
        node=nodes,
        received_at=st.none() | st.integers(1, 2**53),  # 0 is written as unknown
        profile=st.sampled_from(["", "dji", "dji", "another"]),
        open_only=st.booleans(),
    )
    def respond(
        self,
        which: int,
        place: int,
        state: CommandState,
        texts: tuple[bytes | None, bytes | None],
        node: str,
        received_at: int | None,
        profile: str,
        *,
        open_only: bool,
    ) -> None:
        meant = self.chosen(which)
        response = answer(meant, state, *texts, expectation=place % len(meant.expectations), profile=profile)
        response.received_at, response.size = received_at, 77
        self.answered(response, node, open_only=open_only)

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), device=devices, topic=st.sampled_from(["services_reply", "events", "ack"]))
    def respond_astray(self, which: int, device: str, topic: str) -> None:
        """Respond with the id of a command, from any device on any topic."""
        stray = Answer(
            f"thing/product/{device}/{topic}",
            device,
            Correlation.ID,
            self.chosen(which).command_id,
            CommandState.FAILED,
        )
        self.answered(stray, "node-a")

    def answered(self, response: Answer, node: str, *, open_only: bool = False) -> None:
        self.agreed(
            self.model.respond(response, node, open_only=open_only),
            lambda store: store.respond(response, node, open_only=open_only),
        )

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), end=ends, error=texts, node=nodes, only_held=st.booleans())
    def finish(self, which: int, end: CommandState, error: bytes | None, node: str, *, only_held: bool) -> None:
        identity = self.chosen(which).command_id
        self.agreed(
            self.model.finish(identity, end, error, node, only_held=only_held),
            lambda store: store.finish(identity, end, node, error, only_held=only_held),
        )

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), finding=findings, node=nodes)
    def confirm(self, which: int, finding: ProbeFinding, node: str) -> None:
        """A probe settles a command that its deadline does not; of one that ends soon no two clocks would agree."""
        identity = self.chosen(which).command_id
        if identity not in self.soon:
            self.agreed(
                self.model.confirm(identity, finding, node), lambda store: store.confirm(identity, finding, node)
            )

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999), finding=findings)
    def verify(self, which: int, finding: ProbeFinding) -> None:
        self.verified(self.chosen(which), finding)

    @rule(
        which=st.integers(0, 999),
        device=devices,
        steps=st.lists(st.one_of(findings, answers), min_size=1, max_size=4),
        node=nodes,
    )
    def time_out(self, which: int, device: str, steps: list[ProbeFinding | CommandState], node: str) -> None:
        """A command times out, and is looked for and answered since: by chance alone that is rare."""
        if not any(row.waits for row in self.model.rows.values()):
            new = registration(device, home=node)
            self.made.append(new)
            self.agreed(self.model.register(new), lambda store: store.register(new))
        waiting = [row.registration for row in self.model.rows.values() if row.waits]
        one, end = waiting[which % len(waiting)], CommandState.TIMED_OUT
        self.agreed(
            self.model.finish(one.command_id, end, NO_RESPONSE, node),
            lambda store: store.finish(one.command_id, end, node, NO_RESPONSE),
        )
        for step in steps:
            if isinstance(step, ProbeFinding):
                self.verified(one, step)
            else:
                self.answered(answer(one, step), node)

    def verified(self, one: Registration, finding: ProbeFinding) -> None:
        identity = one.command_id
        self.agreed(self.model.verify(identity, finding), lambda store: store.verify(identity, finding))

    @precondition(lambda self: self.made)
    @rule(
        which=st.integers(0, 999),
        state=st.sampled_from([CommandState.SENT, CommandState.ACKNOWLEDGED]),
        sender=st.sampled_from([None, "node-a", "node-b"]),
    )
    def mark(self, which: int, state: CommandState, sender: str | None) -> None:
        identity = self.chosen(which).command_id
        self.agreed(self.model.mark(identity, state, sender), lambda store: store.mark(identity, state, sender))

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999))
    def pass_on(self, which: int) -> None:
        identity = self.chosen(which).command_id

        async def passed_on(store: StateStore) -> str | None:
            follower = await store.pass_on(identity)
            return None if follower is None else follower.command_id

        self.agreed(self.model.pass_on(identity), passed_on)

    @rule(device=devices, lane=lanes, which=st.integers(0, 999), known=st.booleans())
    def resume(self, device: str, lane: CommandLane | None, which: int, *, known: bool) -> None:
        name = "one" if lane is None else lane.name
        stopped_by = self.chosen(which).command_id if self.made else "-"
        if known:
            stopped_by = self.model.stopped.get((device, name), stopped_by)

        async def resumed(store: StateStore) -> Plain:
            found = await store.resume(device, name, stopped_by)
            return found.stop is not None, found.follower and found.follower.command_id

        self.agreed(self.model.resume(device, name, stopped_by), resumed)

    @rule(device=devices, lane=lanes)
    def look_at_lane(self, device: str, lane: CommandLane | None) -> None:
        one = lane or CommandLane("one", LaneOrder.FIFO)

        async def seen(store: StateStore) -> Plain:
            now = await store.lane_now(device, one)
            return now.in_flight, now.waiting, now.until > 0, now.stop is not None

        self.agreed(self.model.lane_now(device, one), seen)

    @precondition(lambda self: self.made)
    @rule()
    def sweep(self) -> None:
        """All that was to end soon is overdue by now."""
        self.clock.now += 0.01
        self.stage.runner.run(asyncio.sleep(0.004))
        expected = {
            identity: self.model.finish(identity, CommandState.TIMED_OUT, NO_RESPONSE)[1]
            for identity in self.model.due(self.soon)
        }
        partitions = [partition_of(device) for device in DEVICES]
        for store in (self.memory, self.rocks.store, *self.stage.redis[:1]):
            found = self.stage.run(store.sweep(partitions, "node-a", timedelta()))
            assert {one[0]: one for one in found} == expected, type(store).__name__
            assert len(found) == len(expected)

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 999))
    def forget(self, which: int) -> None:
        """The record's life ends before that of what points to it."""
        identity = self.chosen(which).command_id
        self.model.rows.pop(identity, None)
        self.stage.run(self.stage.client.delete(keys.callback(partition_of_command(identity), identity)))
        for table in (self.memory.table, self.rocks.store._memory.table):
            record = table.records.pop(identity, None)
            if record is not None:
                table.indexes.forget(record.registration)
                table.has_changed(record)

    @rule()
    def restart(self) -> None:
        """All that there is lies in the folder."""
        self.stage.runner.run(self.rocks.again())

    @rule(node=nodes)
    def pending(self, node: str) -> None:
        expected = self.model.pending_of(node)
        for store in (self.memory, self.rocks.store, self.stage.redis[0]):
            assert sorted(self.stage.run(store.pending_of(node))) == expected, type(store).__name__

    @rule(
        device=st.sampled_from([None, *DEVICES]),
        state=st.sampled_from([None, CommandState.PENDING, CommandState.SUCCEEDED]),
        limit=st.integers(1, 20),
    )
    def listed(self, device: str | None, state: CommandState | None, limit: int) -> None:
        expected = self.model.newest_first(device, state)
        for store in (self.memory, self.rocks.store, self.stage.redis[0]):
            assert self.stage.run(all_pages(store, Query(device, state, limit))) == expected, type(store).__name__

    @invariant()
    def the_records_agree(self) -> None:
        self.stage.steps += 1
        identities = [one.command_id for one in self.made]
        rows = [self.model.rows.get(identity) for identity in identities]
        commands = [row.command() if row is not None else None for row in rows]
        outcomes = self.model.outcomes(identities)
        for store in (self.memory, self.rocks.store, *self.stage.redis[1:]):
            assert self.stage.run(store.get(identities)) == commands, type(store).__name__
            found = self.stage.run(store.outcomes(identities))
            assert [with_gone(one) for one in found] == outcomes, type(store).__name__


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_random_histories_agree(part: int, stage: Stage) -> None:
    class OnStage(Histories):
        def __init__(self) -> None:
            super().__init__(stage)

    run_state_machine_as_test(
        OnStage,
        settings=settings(
            max_examples=MOST_STEPS // STEPS,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # add Phase.shrink to have the shortest history; it takes minutes
        ),
    )
    assert stage.steps >= 3 * MOST_STEPS / 4
