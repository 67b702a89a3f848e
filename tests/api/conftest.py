"""The node that most tests talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.rig import Rig, running


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as one:
        yield one
