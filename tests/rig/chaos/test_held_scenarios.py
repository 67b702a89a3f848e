"""Held commands, lanes, fleet runs and webhooks lose what they stand on; devices keep books of what they got."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.chaos.short_forms import OF_HELD, check_short_form


@pytest.mark.parametrize("name", OF_HELD)
async def test_scenario(name: str, tmp_path: Path) -> None:
    await check_short_form(name, tmp_path)
