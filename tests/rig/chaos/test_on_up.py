"""One `homing up` is killed, with its broker and its store in it, and everything is accounted for when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.chaos.short_forms import check_short_form


@pytest.mark.parametrize("name", ["R3", "R31", "E8"])
async def test_scenario(name: str, tmp_path: Path) -> None:
    await check_short_form(name, tmp_path, up=True)
