"""The time in which an explanation looks for messages that were no answer."""

from __future__ import annotations

from datetime import timedelta

from app.commands.explain.explainer import CLOCKS_US
from app.store.holds import Claimed
from tests.unit.assembly import assemble, request


async def test_what_came_before_its_claim_cannot_be_the_answer_to_a_command_that_was_held() -> None:
    assembly = await assemble(1)
    parts = assembly.members[0].parts
    held = (await parts.holder.invoke(request(hold=timedelta(hours=8)), None, park=False)).command
    assembly.clock.advance(3600)
    claimed = await assembly.store.claim(held.id, "n1", "token")
    assert isinstance(claimed, Claimed)
    _, target = parts.explainer._target(claimed.command)
    assert target.since == await assembly.store.now() - CLOCKS_US
