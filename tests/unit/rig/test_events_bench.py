"""The benchmark of the event log does what it says; how fast it was is for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.rig.bench.events import entry, measure


@pytest.mark.parametrize("engine", ["memory", "rocks"])
async def test_it_runs_and_says_what_it_found(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await measure("memory://" if engine == "memory" else f"rocks://{tmp_path}/log", 2000)
    said = [line[:22].strip() for line in capsys.readouterr().out.splitlines()]
    assert said[:4] == ["append, 1 at once", "append, 16 at once", "append, 512 at once", "append, 64 at once"]
    assert ("on the disk" in said) is (engine == "rocks")
    assert not (tmp_path / "log").exists()


def test_events_are_as_long_as_positions_are() -> None:
    assert all(150 < len(entry(number).value) < 200 for number in range(0, 100_000, 777))
