"""The key of the administrator is shown by a start of `homing up`, whatever became of the ones before."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

from homing_rig.ports import lasting_port
from tests.waiting import PATIENCE

KEY = re.compile(r"^homing_[0-9A-Z]{8}_\w+$", re.MULTILINE)


def up(data: Path, api: str, mqtt: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", "up", "--data", str(data), "--api", api, "--mqtt", mqtt]
    return subprocess.run(command, env={}, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_key_that_no_start_has_shown_is_shown_by_the_next(tmp_path: Path) -> None:
    """The usual first evening: another program has the port."""
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        first = up(data, taken, f"127.0.0.1:{lasting_port()}")
        second = up(data, "127.0.0.1:0", taken)
    for one in (first, second):
        assert (one.returncode, "Address already in use" in one.stderr) == (2, True), one.stderr
    assert KEY.findall(first.stdout) == []
    assert KEY.findall(second.stdout) == [(data / "secrets" / "admin.key").read_text().strip()]
