"""The steps of a command stand in the order in which they happened, on two clocks."""

from __future__ import annotations

import pytest

from app.callbacks.pending import Pending
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.messages import Receipt
from app.mqtt.base import Puback
from app.observers.notes import hops_of

CREATED_US = 1_700_000_000_000_000


def of_a_slow_store(out: float, back: float) -> Pending:
    """Registered by a store that got it `out` seconds after the node began, and whose answer took `back` seconds."""
    pending = Pending(opened_at=100.0)
    pending.about(
        Command(
            "id", "SN1", "photo", b"{}", "homing", CommandState.PENDING, "node-a", CREATED_US, CREATED_US + 10_000_000
        )
    )
    pending.registered_at = 100.0 + out + back
    return pending


@pytest.mark.parametrize(("out", "back"), [(0.05, 0.0), (0.0, 0.05), (0.02, 0.03)])
async def test_a_command_that_its_puback_ended_was_published_before(out: float, back: float) -> None:
    """Seen where a busy node took 13 ms to register: `published` stood behind `unsent`."""
    pending = of_a_slow_store(out, back)
    registered = 100.0 + out + back
    pending.published_at = registered + 0.001
    pending.puback = Puback(left=True)
    pending.puback.set_result(Receipt.UNMATCHED)
    finished_us = CREATED_US + round((back + 0.004) * 1_000_000)
    pending.close(Outcome("id", CommandState.UNSENT, finished_us), registered + 0.005, None)
    pending.delivered_at = registered + 0.006
    hops = hops_of(pending)
    assert [hop.what for hop in hops] == ["published", "acknowledged", "delivered"]
    published, acknowledged, delivered = (hop.at or 0 for hop in hops)
    assert CREATED_US <= published <= acknowledged <= finished_us <= delivered


async def test_a_step_of_an_open_command_is_never_shown_later_than_it_was() -> None:
    pending = of_a_slow_store(0.02, 0.03)
    pending.acknowledged_at = 100.06
    truly_us = CREATED_US + 40_000
    assert CREATED_US <= (pending.store_us(pending.acknowledged_at) or 0) <= truly_us
