"""Redis, the way to it, or its clock is in trouble, and every command is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.chaos.short_forms import OF_STORE, check_short_form


@pytest.mark.parametrize("name", OF_STORE)
async def test_scenario(name: str, tmp_path: Path) -> None:
    await check_short_form(name, tmp_path)
