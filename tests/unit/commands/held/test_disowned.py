"""A command that was perhaps held, and whose caller was told that it was not, is not sent hours later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.commands.deadlines.expirer import DISOWNED_SECONDS, Expirer
from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.errors import StoreUnavailableError
from app.store.commands import Finished, Joined, Query, Registered
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.commands.writer import Wake
from tests.unit.assembly import WAKE_KEY, Assembly, Lamp, ManualClock, assemble, never, request

HOUR = timedelta(hours=1)
TURNS = """
name = "turns"
description = "lamps that blink one after the other"
[request]
topic = "turns/{device_id}/do"
payload = { id = "{id}" }
[[response]]
name = "done"
topic = "turns/{device_id}/done"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
[[lane]]
name = "blinks"
methods = ["blink"]
order = "fifo"
hold = "1h"
"""


class GivesUp(MemoryStateStore):
    """Registers, and says that it did not answer in time; with `late`, it registers when it is told to."""

    gives_up = True
    late = False
    away = False
    left: Registration | None = None

    async def register(self, registration: Registration) -> Registered | Joined:
        if self.late and self.gives_up:
            self.left = registration
            raise StoreUnavailableError("no reply")
        reply = await super().register(registration)
        if self.gives_up:
            raise StoreUnavailableError("no reply")
        return reply

    async def carry_out(self) -> None:
        self.gives_up = False
        assert self.left is not None
        await self.register(self.left)

    async def finish(self, *args: Any, **named: Any) -> Finished:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().finish(*args, **named)


async def gives_up(profiles_dir: Path | None = None) -> tuple[Assembly, GivesUp]:
    def store(clock: ManualClock, wake: Wake) -> GivesUp:
        return GivesUp(clock, wake=wake, wake_key=WAKE_KEY)

    assembly = await assemble(make_store=store, profiles_dir=profiles_dir)
    assert isinstance(assembly.store, GivesUp)
    return assembly, assembly.store


async def hold(assembly: Assembly, **changes: Any) -> StoreUnavailableError:
    """Ask for a command to be held, in vain; the error."""
    asked = request(hold=HOUR, if_offline=IfOffline.HOLD, **changes)
    with pytest.raises(StoreUnavailableError) as refused:
        await assembly.members[0].parts.holder.invoke(asked, None, park=True)
    return refused.value


@asynccontextmanager
async def expiring(assembly: Assembly) -> AsyncIterator[Expirer]:
    expirer = assembly.members[0].expirer
    running = asyncio.create_task(expirer.run())
    yield expirer
    running.cancel()


async def pass_by(assembly: Assembly, expirer: Expirer, seconds: float) -> None:
    """Let time pass, and the expirer do what is due then."""
    assembly.clock.advance(seconds)
    expirer._changed.set()
    for _ in range(20):
        await asyncio.sleep(0)


async def only_command(assembly: Assembly) -> Command:
    (command,) = (await assembly.store.list_commands(Query())).commands
    return command


async def test_what_nobody_knows_to_be_held_ends_as_unsent() -> None:
    assembly, _ = await gives_up()
    async with expiring(assembly) as expirer:
        error = await hold(assembly)
        command = await only_command(assembly)
        assert (command.state, command.id) == (CommandState.HELD, error.command_id)
        await pass_by(assembly, expirer, DISOWNED_SECONDS)
    command = await only_command(assembly)
    assert command.state is CommandState.UNSENT
    assert json.loads(command.error or b"")["code"] == "not_sent"
    assert len(assembly.members[0].waiters) == 0


async def test_what_the_store_carries_out_after_its_caller_gave_up_ends_as_well() -> None:
    assembly, store = await gives_up()
    store.late = True
    async with expiring(assembly) as expirer:
        await hold(assembly)
        await pass_by(assembly, expirer, DISOWNED_SECONDS / 2)
        await store.carry_out()
        await pass_by(assembly, expirer, DISOWNED_SECONDS / 2)
    assert (await only_command(assembly)).state is CommandState.UNSENT


async def test_it_ends_when_the_store_is_back() -> None:
    assembly, store = await gives_up()
    store.away = True
    async with expiring(assembly) as expirer:
        await hold(assembly)
        for _ in range(3):
            await pass_by(assembly, expirer, DISOWNED_SECONDS)
        assert (await only_command(assembly)).state is CommandState.HELD
        store.away = False
        await pass_by(assembly, expirer, DISOWNED_SECONDS)
    assert (await only_command(assembly)).state is CommandState.UNSENT


async def test_what_its_key_stands_for_is_there_for_whoever_repeats_the_call() -> None:
    assembly, store = await gives_up()
    async with expiring(assembly) as expirer:
        error = await hold(assembly, idempotency_key="k")
        await pass_by(assembly, expirer, 2 * DISOWNED_SECONDS)
        store.gives_up = False
        asked = request(hold=HOUR, if_offline=IfOffline.HOLD, idempotency_key="k")
        again = await assembly.members[0].parts.holder.invoke(asked, None, park=False)
    assert again.replayed
    assert (again.command.id, again.command.state) == (error.command_id, CommandState.HELD)


@pytest.mark.parametrize("claimer", ["n1", "n2"])
async def test_what_a_node_has_claimed_meanwhile_is_left_to_it(claimer: str) -> None:
    assembly, store = await gives_up()
    async with expiring(assembly) as expirer:
        error = await hold(assembly)
        await store.claim(str(error.command_id), claimer, "its token")
        await pass_by(assembly, expirer, DISOWNED_SECONDS)
    assert (await only_command(assembly)).state is CommandState.PENDING


async def test_a_place_in_a_lane_that_was_got_after_its_caller_gave_up_is_given_away(tmp_path: Path) -> None:
    (tmp_path / "turns.toml").write_text(TURNS)
    assembly, store = await gives_up(tmp_path)
    await Lamp(assembly.broker, never).start()
    invoker = assembly.members[0].invoker
    store.gives_up = False
    first = await invoker.invoke(request(profile="turns", timeout=HOUR), park=False)
    store.gives_up = store.late = True
    async with expiring(assembly) as expirer:
        with pytest.raises(StoreUnavailableError) as refused:
            await invoker.invoke(request(profile="turns"), park=True)
        await invoker.drained()  # nothing is on record yet that could be ended
        await store.carry_out()
        assert (await store.read(str(refused.value.command_id))).state is CommandState.HELD
        await pass_by(assembly, expirer, DISOWNED_SECONDS)
    assert (await store.read(str(refused.value.command_id))).state is CommandState.UNSENT
    assert (await store.read(first.command.id)).state is CommandState.PENDING


async def test_an_outage_costs_a_line_in_ten_seconds_and_not_one_for_each_command() -> None:
    assembly, store = await gives_up()
    store.away = True
    expirer = assembly.members[0].expirer
    with capture_logs() as logs:
        for number in range(50):
            await expirer.end(f"000-{number:026}", CommandState.UNSENT)
        assembly.clock.advance(10)
        await expirer.end(f"000-{50:026}", CommandState.UNSENT)
    assert [(one["event"], one["count"]) for one in logs] == [("command_not_ended", 1), ("command_not_ended", 50)]
