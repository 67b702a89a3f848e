"""Workers of a queue whose nodes are away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest

from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.worked import Workers

EVENT = {"topic": "homing/SN1/event", "position": 1, "data": {"n": 0}}


class LendingAnswer:
    """An answer that lends one event."""

    status = 200

    def raise_for_status(self) -> None:
        """It is none of an error."""

    async def json(self) -> dict[str, Any]:
        return {"events": [{"loan": "one", "event": EVENT}]}


class LendingNodes:
    """Nodes that lend, and are gone when it comes to settling."""

    @asynccontextmanager
    async def post(self, url: str, **_: Any) -> AsyncIterator[LendingAnswer]:
        if url.endswith("/settle"):
            raise aiohttp.ServerDisconnectedError
        yield LendingAnswer()


async def test_workers_end_when_no_node_ever_settles_what_they_did() -> None:
    workers = Workers(cast("aiohttp.ClientSession", LendingNodes()), "all", lambda: ("n1", "http://n1"), 1)
    workers.patience = 0.0
    workers.spare()
    with pytest.raises(ChaosError, match="/v1/queues/all/settle: no node has answered it for 0 s"):
        await workers.work(1)
