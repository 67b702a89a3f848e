"""`homing chaos`: what it refuses, each in one sentence and with exit code 2, before anything is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from homing_rig.chaos import stepped
from homing_rig.chaos.scenarios import SCENARIOS
from tests.unit.cli.conftest import Homing


def test_the_list_has_every_scenario_and_its_figures(homing: Homing) -> None:
    code, out, err = homing("chaos", "--list")
    assert (code, err) == (0, "")
    for scenario in SCENARIOS.values():
        assert scenario.name in out
        assert scenario.title.split()[0] in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--scenario: give one, such as R3; --list shows them all"),
        (("-s", "R99"), "scenario: 'R99' is unknown; allowed: R1, R2, R3"),
        (("-s", "R3", "--seed", "-1"), "seed: -1; allowed are 0 to 9223372036854775807"),
        (("-s", "R3", "--seconds", "0"), "seconds: 0; allowed are 1 to 86400"),
        (("-s", "R3", "--rate", "0"), "rate: 0; allowed are 1 to 10000"),
        (("-s", "R3", "--nodes", "10"), "nodes: 10; allowed are 1 to 9"),
        (("-s", "R18", "--nodes", "2"), "nodes: 2; R18 needs 3 or more"),
        (("-s", "R3", "--schedule", "missing"), "schedule: missing cannot be read: No such file or directory"),
        (("-s", "R3", "--schedule", "bad"), "schedule: bad line 2: '5 explode n1' is no fault; needed is: when"),
        (("-s", "R3", "--schedule", "foreign"), "schedule: kill of 'n7'; allowed: n1, n2, n3, broker"),
        (("-s", "R3", "--schedule", "blackhole"), "schedule: blackhole of 'n1'; allowed: no target here"),
        (("-s", "R3", "--schedule", "clock"), "schedule: clock_forward of 'redis'; allowed: no target here"),
        (("-s", "R3", "--out", "bad"), "out: bad is no folder"),
    ],
)
def test_what_cannot_be_run_is_refused(homing: Homing, arguments: tuple[str, ...], sentence: str) -> None:
    Path("bad").write_text("# a comment\n5 explode n1\n")
    Path("foreign").write_text("1 kill n7\n")
    Path("blackhole").write_text("1 blackhole n1 5\n")
    Path("clock").write_text("1 clock_forward redis 5\n")
    code, out, err = homing("chaos", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("binary", ["redis-server", "mosquitto"])
def test_a_missing_service_is_named(homing: Homing, monkeypatch: pytest.MonkeyPatch, binary: str) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == binary else which(name, path=path))
    code, _, err = homing("chaos", "-s", "R1")
    assert code == 2
    assert err.startswith(f"homing: {binary} is not installed")


def test_a_missing_libfaketime_is_named(homing: Homing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "library", lambda: None)
    code, _, err = homing("chaos", "-s", "R26")
    assert code == 2
    assert err.startswith("homing: libfaketime.so.1 is not installed")
