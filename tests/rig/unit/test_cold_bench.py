"""The benchmark of the cold tier does what it says; how fast it was is for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from homing_rig.bench.cold import READINGS, measure


async def test_it_runs_and_says_what_it_found(tmp_path: Path) -> None:
    said: list[str] = []
    cost = await measure(f"rocks://{tmp_path}/log", tmp_path / "cold", 4000, lambda what, _how_much: said.append(what))
    assert 0 < cost.kept < 1
    assert set(cost.readings) == set(READINGS)
    assert said == ["cooling", "in the cold tier", *READINGS, "all, over the border"]
    assert not (tmp_path / "cold").exists()


async def test_a_folder_of_somebody_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is there already"):
        await measure(f"rocks://{tmp_path}/log", tmp_path, 4000)
