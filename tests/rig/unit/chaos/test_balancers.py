"""The balancers that stand between the rig's callers and its nodes."""

from __future__ import annotations

import asyncio

from homing_rig.chaos.balancers import StaleView
from tests.waiting import eventually


async def test_a_node_that_says_nothing_does_not_hide_that_another_one_drains() -> None:
    """A node that starts listens before it answers; meanwhile the list must not stand still for all others."""
    ready = {"n2": True, "n3": True}

    async def answers(name: str) -> bool:
        if name == "n1":
            await asyncio.Event().wait()
        return ready[name]

    view = StaleView([(name, "") for name in ("n1", "n2", "n3")], answers, behind=0.0)
    looking = asyncio.create_task(view.look())
    ready["n2"] = False
    await eventually(lambda: "n2" not in {view()[0] for _ in range(3)})
    ready["n2"] = True
    await eventually(lambda: "n2" in {view()[0] for _ in range(3)})
    looking.cancel()
