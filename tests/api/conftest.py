"""The node that most tests talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.rig import Rig, is_ready, running
from tests.waiting import eventually


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as one:
        yield one


@pytest.fixture
async def keeping() -> AsyncIterator[Rig]:
    """A node that keeps events in memory."""
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        yield rig
