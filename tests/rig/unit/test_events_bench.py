"""The benchmark of the event log does what it says; how fast it was is for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing_rig.bench.events import entry, measure


@pytest.mark.parametrize("engine", ["memory", "rocks"])
async def test_it_runs_and_says_what_it_found(engine: str, tmp_path: Path) -> None:
    said: list[str] = []
    url = "memory://" if engine == "memory" else f"rocks://{tmp_path}/log"
    cost = await measure(url, 2000, lambda what, _how_much: said.append(what))
    assert (cost.kept is not None) is (engine == "rocks")
    assert min(cost.wild, cost.merged, cost.exact, cost.scan) > 0
    assert said[:4] == ["append, 1 at once", "append, 16 at once", "append, 512 at once", "append, 64 at once"]
    assert ("on the disk" in said) is (engine == "rocks")
    assert not (tmp_path / "log").exists()


def test_events_are_as_long_as_positions_are() -> None:
    assert all(150 < len(entry(number).value) < 200 for number in range(0, 100_000, 777))
