"""The unit of systemd says what systemd understands, and stops a node as a node wants to be stopped."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = pytest.mark.parametrize("verb", ["serve", "up"])


def unit_of(verb: str) -> Path:
    return FOLDER / {"serve": "homing.service", "up": "homing-up.service"}[verb]


@UNITS
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_it(tmp_path: Path, verb: str) -> None:
    """The unit gets a program that is there, and the user of this process: those of the page are made by its steps."""
    text = unit_of(verb).read_text("utf-8").replace(f"/opt/homing/venv/bin/homing {verb}", shutil.which("true") or "")
    kept = [line for line in text.splitlines() if not line.startswith(("User=", "Group=", "Documentation="))]
    unit = tmp_path / "homing.service"
    unit.write_text("\n".join(kept))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@UNITS
def test_a_node_has_time_to_drain_and_is_not_started_again_with_wrong_settings(verb: str) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # names of systemd have capitals
    unit.read(unit_of(verb))
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > 22  # as docs/operations/containers.md counts
    assert (service["Type"] == "notify") is (verb == "up") is ("WatchdogSec" in service)
    assert (service["KillSignal"], service["RestartPreventExitStatus"]) == ("SIGTERM", "2")
