"""Held commands in a folder, when its node starts again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.holds import Claimed, Waits
from tests.contract.store_backends import RocksBackend, answer, by_value, registration

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("again", [False, True])
async def test_what_was_never_sent_is_named_by_no_value(tmp_path: Path, *, again: bool) -> None:
    backend = RocksBackend(tmp_path)
    await backend.open()
    wanted = registration("dock-1", by_value("v"), held=HOUR)
    await backend.store.register(wanted)
    await backend.store.finish(wanted.command_id, CommandState.CANCELLED, "node-a")
    if again:
        await backend.again()
    assert (await backend.store.respond(answer(wanted), "node-a")).verdict is MatchResult.UNKNOWN
    await backend.close()


async def test_a_value_names_the_open_command_also_if_it_is_the_older_one(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path)
    await backend.open()
    first, second = registration("dock-1", by_value("v"), held=HOUR), registration("dock-1", by_value("v"))
    for one in (first, second):
        await backend.store.register(one)
    await backend.store.respond(answer(second), "node-a")
    assert await backend.store.claim(first.command_id, "node-a", "t")
    await backend.again()
    recorded = await backend.store.respond(answer(first), "node-a")
    assert (recorded.verdict, recorded.command_id) == (MatchResult.WON, first.command_id)
    await backend.close()


async def test_a_key_that_is_replaced_is_there_when_the_node_starts_again(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path)
    await backend.open()
    first, second = (registration("dock-1", held=HOUR, replaces="cover", run="run-7") for _ in range(2))
    await backend.store.register(first)
    before = await backend.store.read(first.command_id)
    await backend.again()
    assert await backend.store.read(first.command_id) == before
    await backend.store.register(second)
    assert (await backend.store.read(first.command_id)).state is CommandState.CANCELLED
    await backend.close()


async def test_a_decision_is_there_when_the_node_starts_again(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path)
    await backend.open()
    lane = CommandLane("flight", LaneOrder.FIFO)
    waits, approved = (registration("dock-1", held=HOUR, approval=HOUR, lane=lane) for _ in range(2))
    for one in (waits, approved):
        await backend.store.register(one)
    assert (await backend.store.decide(approved.command_id, ApprovalDecision(True, "", "anna"), "node-a")).won
    before = [await backend.store.read(one.command_id) for one in (waits, approved)]
    await backend.again()
    assert [await backend.store.read(one.command_id) for one in (waits, approved)] == before
    assert (await backend.store.lane_now("dock-1", lane)).waiting == (approved.command_id,)
    assert isinstance(await backend.store.claim(waits.command_id, "node-a", "t1"), Waits)
    assert isinstance(await backend.store.claim(approved.command_id, "node-a", "t2"), Claimed)
    await backend.close()
