"""A command whose caller has lost the right is cancelled while it is held, and only then."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.commands.held.claimant import Claimant
from app.commands.held.drainer import NOT_ALLOWED
from app.core.commands.command import Command, CommandState
from app.runtime.listeners import Listeners
from tests.contract.store_backends import registration
from tests.unit.assembly import Assembly, assemble

HOUR = timedelta(hours=1)


@pytest.fixture
async def assembly() -> Assembly:
    return await assemble()


def claimant_of(assembly: Assembly, counters: Counter[str]) -> Claimant:
    """The claimant of a node that refuses alone: it sends nothing here."""
    member = assembly.members[0]
    nothing = cast("Any", SimpleNamespace(handed_over=Listeners()))
    return Claimant(
        store=assembly.store,
        claims=nothing,
        publisher=nothing,
        open_commands=nothing,
        expirer=member.expirer,
        serves=lambda: True,
        clock=assembly.clock,
        counters=counters,
        observers=nothing,
    )


async def held(assembly: Assembly) -> Command:
    wanted = registration(held=HOUR)
    await assembly.store.register(wanted)
    return await assembly.store.read(wanted.command_id)


async def test_what_is_held_is_cancelled(assembly: Assembly) -> None:
    command, counters = await held(assembly), Counter[str]()
    await claimant_of(assembly, counters).refuse(command, NOT_ALLOWED)
    assert (await assembly.store.read(command.id)).state is CommandState.CANCELLED
    assert counters == {"held.refused": 1}


async def test_what_another_node_has_claimed_meanwhile_is_not_said_to_be_unsent(assembly: Assembly) -> None:
    """The other node does not know yet that the right is lost, and has sent it."""
    command, counters = await held(assembly), Counter[str]()
    await assembly.store.claim(command.id, "node-b", "t")
    await claimant_of(assembly, counters).refuse(command, NOT_ALLOWED)
    assert (await assembly.store.read(command.id)).state is CommandState.PENDING
    assert not counters
