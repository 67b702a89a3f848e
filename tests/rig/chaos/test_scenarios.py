"""Nodes, the broker and the load are in trouble, and every command is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing_rig.guard import DATABASE
from tests.rig.chaos.short_forms import OF_COMMANDS, check_short_form


@pytest.mark.parametrize("name", OF_COMMANDS)
async def test_scenario(name: str, tmp_path: Path) -> None:
    await check_short_form(name, tmp_path)


@pytest.mark.parametrize("name", ["R3", pytest.param("R18", marks=pytest.mark.long)])
async def test_scenario_with_access(name: str, tmp_path: Path) -> None:
    """Nodes that ask for keys and keep an audit are killed, and leave nothing behind."""
    await check_short_form(name, tmp_path, access=True)
    assert (tmp_path / f"{name}-1" / DATABASE).exists()
