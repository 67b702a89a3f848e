"""Held commands in a folder, when its node starts again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
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
