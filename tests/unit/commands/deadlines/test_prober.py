"""The prober settles what a device says of its state, before the deadline and in nobody's place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from app.commands.send.invoker import Invocation
from app.core.commands.command import Command, CommandState
from app.core.errors import EventLogError, EventsOffError, StoreUnavailableError
from app.core.events.event import Entry, Event
from app.core.profiles.correlation import Correlation
from app.store.commands import Finished
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Assembly, Lamp, Member, assemble, never, request

TOPIC = "homing/lamp-1/state"
RULES = """
[[event]]
name = "state"
topic = "homing/{device_id}/state"

[[probe]]
methods = ["blink"]
topic = "homing/{device_id}/state"
done = [{ path = "on", is_in = [true] }]
goal = true
within = "4s"
"""


class Log:
    """The last word of a lamp, if the log tells."""

    def __init__(self) -> None:
        self.told: Event | None = None
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def last(self, _database: str | None, topic: str) -> Event | None:
        self.asked.append(topic)
        if self.error is not None:
            raise self.error
        return self.told


class Away(MemoryStateStore):
    """A store that can settle nothing while it is away."""

    away = False

    async def confirm(self, *args: Any, **kwargs: Any) -> Finished:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().confirm(*args, **kwargs)


@dataclass
class Stage:
    assembly: Assembly
    member: Member
    lamp: Lamp
    log: Log

    @property
    def counters(self) -> dict[str, int]:
        return {name: count for name, count in self.member.counters.items() if name.startswith("probe.")}

    async def sent(self, **changes: Any) -> Invocation:
        invocation = await self.member.invoker.invoke(request(**changes), park=True)
        await turns()
        return invocation

    async def after(self, seconds: float) -> None:
        """Let so much time pass, a quarter of a second at a time."""
        for _ in range(round(seconds * 4)):
            self.assembly.clock.advance(0.25)
            for one in self.assembly.members:
                one.prober._changed.set()
                one.expirer._changed.set()
            await turns()

    def tell(self, *, on: bool) -> None:
        self.tell_raw(json.dumps({"on": on}).encode())

    def tell_raw(self, payload: bytes) -> None:
        self.log.told = Event(self.member.node.kernel.now_us(), 0, Entry(TOPIC, payload, device="lamp-1"))


async def turns() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


@asynccontextmanager
async def staged(
    tmp_path: Path, store: type[MemoryStateStore] = MemoryStateStore, rules: str = RULES, size: int = 1
) -> AsyncIterator[Stage]:
    plain = (resources.files("app.profiles.shipped") / "homing.toml").read_text("utf-8")
    plain = plain.replace("repeatable = []", 'repeatable = ["state_get"]')
    (tmp_path / "homing.toml").write_text(plain + rules, encoding="utf-8")
    log = Log()
    assembly = await assemble(
        size, make_store=lambda clock, wake: store(clock, wake=wake), profiles_dir=tmp_path, last_event=log.last
    )
    member, lamp = assembly.members[0], Lamp(assembly.broker, never)
    await lamp.start()
    running = [asyncio.create_task(one) for each in assembly.members for one in (each.prober.run(), each.expirer.run())]
    try:
        yield Stage(assembly, member, lamp, log)
    finally:
        for one in running:
            one.cancel()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as made:
        yield made


async def outcome(invocation: Invocation) -> Command:
    return await invocation.wait(AS_LONG_AS_IT_TAKES)


async def test_a_state_that_was_told_since_is_the_outcome_before_the_deadline(stage: Stage) -> None:
    invocation = await stage.sent()
    await stage.after(2)
    stage.tell(on=True)
    await stage.after(3.75)
    assert stage.log.asked == []  # the answer is still welcome
    assert invocation.command.id in stage.member.open_commands
    await stage.after(1)
    command = await outcome(invocation)
    assert (command.state, command.matched_by, command.error) == (CommandState.SUCCEEDED, Correlation.PROBE, None)
    assert command.finished_at is not None
    assert command.finished_at < command.deadline
    finding = json.loads(command.confirmed_by or b"")
    assert (finding["kind"], finding["topic"], finding["value"]) == ("goal", TOPIC, {"on": True})
    assert await stage.assembly.store.read(command.id) == command
    assert stage.counters == {"probe.goal": 1}


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (None, "untold"),
        (b'{"on": false}', "not_so"),
        (b'{"on": "true"}', "unknown"),
        (b"{}", "unknown"),
        (b'{"on": true', "unknown"),
    ],
)
async def test_what_says_nothing_for_sure_leaves_the_time_out(stage: Stage, said: bytes | None, counted: str) -> None:
    invocation = await stage.sent()
    await stage.after(2)
    if said is not None:
        stage.tell_raw(said)
    await stage.after(9)
    command = await outcome(invocation)
    assert (command.state, command.matched_by, command.confirmed_by) == (CommandState.TIMED_OUT, None, None)
    assert stage.counters == {f"probe.{counted}": 1}


async def test_a_state_from_before_the_command_is_not_its_doing(stage: Stage) -> None:
    stage.tell(on=True)
    invocation = await stage.sent()
    await stage.after(0.5)
    stage.tell(on=True)  # clocks may differ by that
    await stage.after(10)
    assert (await outcome(invocation)).state is CommandState.TIMED_OUT
    assert stage.counters == {"probe.untold": 1}


async def test_a_device_may_tell_its_state_in_parts(stage: Stage) -> None:
    invocation = await stage.sent()
    await stage.after(7)
    stage.tell_raw(b'{"volts": 12}')
    await stage.after(1)
    stage.tell(on=True)
    await stage.after(1)
    assert (await outcome(invocation)).matched_by is Correlation.PROBE


async def test_an_answer_that_comes_first_wins(stage: Stage) -> None:
    invocation = await stage.sent()
    await stage.after(5)
    stage.lamp.say(stage.lamp.received[0], "error", error={"code": 1, "message": "no"})
    await turns()
    stage.tell(on=True)
    await stage.after(5)
    command = await outcome(invocation)
    assert (command.state, command.matched_by) == (CommandState.FAILED, Correlation.ID)
    assert (stage.log.asked, stage.counters) == ([], {})


async def test_nothing_is_settled_that_the_broker_has_not_acknowledged(stage: Stage) -> None:
    invocation = await stage.sent()
    pending = stage.member.open_commands.get(invocation.command.id)
    assert pending is not None
    pending.puback = None  # as after a restart of the node
    await stage.after(2)
    stage.tell(on=True)
    await stage.after(9)
    assert (await outcome(invocation)).state is CommandState.TIMED_OUT
    assert (stage.log.asked, stage.counters) == ([], {"probe.no_puback": 1})


@pytest.mark.parametrize("error", [EventsOffError("off"), EventLogError("away")])
async def test_a_log_that_tells_nothing_settles_nothing(stage: Stage, error: Exception) -> None:
    stage.log.error = error
    invocation = await stage.sent()
    await stage.after(11)
    assert (await outcome(invocation)).state is CommandState.TIMED_OUT
    assert stage.counters == {"probe.blind": 1}


async def test_what_the_store_did_not_take_is_found_again_at_the_next_look(tmp_path: Path) -> None:
    async with staged(tmp_path, Away) as stage:
        store = stage.assembly.store
        assert isinstance(store, Away)
        invocation = await stage.sent()
        await stage.after(5)
        stage.tell(on=True)
        store.away = True
        await stage.after(2)
        assert invocation.command.id in stage.member.open_commands
        store.away = False
        await stage.after(1)
        assert (await outcome(invocation)).matched_by is Correlation.PROBE


async def test_methods_without_a_probe_are_not_looked_at(stage: Stage) -> None:
    invocation = await stage.sent(method="glow")
    await stage.after(2)
    stage.tell(on=True)
    await stage.after(9)
    assert (await outcome(invocation)).state is CommandState.TIMED_OUT
    assert (stage.log.asked, stage.counters) == ([], {})


async def test_a_command_with_less_time_than_its_probe_is_looked_at_from_the_beginning(stage: Stage) -> None:
    invocation = await stage.sent(timeout=timedelta(seconds=3))
    await stage.after(1.25)
    stage.tell(on=True)
    await stage.after(1)
    assert (await outcome(invocation)).matched_by is Correlation.PROBE


@pytest.mark.parametrize(("status", "contradictions"), [("ok", 0), ("error", 1)])
async def test_an_answer_that_says_something_else_afterwards_is_counted(
    stage: Stage, status: str, contradictions: int
) -> None:
    invocation = await stage.sent()
    await stage.after(5)
    stage.tell(on=True)
    await stage.after(3)
    assert (await outcome(invocation)).matched_by is Correlation.PROBE
    stage.lamp.say(stage.lamp.received[0], status)
    await turns()
    command = await stage.assembly.store.read(invocation.command.id)
    assert command.late is not None
    assert stage.member.counters["probe.contradicted"] == contradictions
