"""Nodes that bring events in die, and logs, queues and their receivers fail: every event is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.chaos.short_forms import OF_EVENTS, check_short_form


@pytest.mark.parametrize("name", OF_EVENTS)
async def test_scenario(name: str, tmp_path: Path) -> None:
    await check_short_form(name, tmp_path)
