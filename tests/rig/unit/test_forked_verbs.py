"""The program `homing` that begins as a fork does for a shell what one does that starts an interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil  # type: ignore[import-untyped] # it has no types
import pytest

from homing_rig.fork_server import LOADED
from homing_rig.forked_verbs import forked_homing
from homing_rig.ports import lasting_port
from homing_rig.programs import environment
from homing_rig.services import wait_until
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
STARTED = f"{sys.executable} -m app.cli"
SCRIPT = """
set -u
homing nonsense; echo "code $?"
(cd elsewhere && homing serve; echo "code $?")
echo '{"method":' | homing api POST /v1/devices -; echo "code $?"
homing --help | cat
echo first >kept; homing version >>kept; cat kept; echo "code $?"
"""


def run(script: str, homing: str, folder: Path) -> tuple[str, str]:
    """Have a shell run this, and return what it says and complains of."""
    (folder / "elsewhere").mkdir(parents=True)
    (folder / "elsewhere" / ".env").write_text("HOMING_MQTT_URL=nothing://\n")
    text = f'homing() {{ {homing} "$@"; }}\n{script}'
    settings = {"COLUMNS": "100", "HOMING_API_PORT": str(lasting_port())}
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment(settings), capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_a_shell_sees_no_difference(homing_program: Path, tmp_path: Path) -> None:
    forked = run(SCRIPT, str(homing_program), tmp_path / "forked")
    assert forked == run(SCRIPT, STARTED, tmp_path / "started")
    codes = [line for line in forked[0].splitlines() if line.startswith("code ")]
    assert codes == [*["code 2"] * 3, "code 0"]
    assert "HOMING_MQTT_URL" in forked[1], "the settings of its folder"
    assert "first\nhoming " in forked[0]


def begun(program: Path, folder: Path) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """A node that waits for its broker, and the process that is forked for it."""
    port = lasting_port()
    settings = {"HOMING_API_PORT": str(port), "HOMING_STORE_URL": "memory://", "HOMING_MQTT_URL": "mqtt://[::1]:1"}
    with (folder / "log").open("wb") as log:
        program_of_shell = subprocess.Popen(
            [program, "serve"], cwd=folder, env=environment(settings), stdout=log, stderr=log
        )
    assert wait_until(lambda: "mqtt" in (folder / "log").read_text(), PATIENCE), "it runs, and finds no broker"
    (listening,) = [one for one in psutil.net_connections("tcp4") if one.status == "LISTEN" and one.laddr.port == port]
    return program_of_shell, psutil.Process(listening.pid)


def test_signals_are_passed_on(homing_program: Path, tmp_path: Path) -> None:
    program, process = begun(homing_program, tmp_path)
    assert process.pid != program.pid
    program.terminate()
    assert program.wait(PATIENCE) == 0
    assert "node_stopped" in (tmp_path / "log").read_text()


def test_it_is_gone_when_its_program_is_killed(homing_program: Path, tmp_path: Path) -> None:
    program, process = begun(homing_program, tmp_path)
    program.kill()
    assert program.wait(PATIENCE) == -signal.SIGKILL
    process.wait(PATIENCE)


def test_a_signal_that_ends_the_process_ends_the_program(homing_program: Path, tmp_path: Path) -> None:
    program, process = begun(homing_program, tmp_path)
    process.kill()
    assert program.wait(PATIENCE) == -signal.SIGKILL


def test_what_still_runs_at_the_end_is_killed(tmp_path: Path) -> None:
    with forked_homing(tmp_path) as homing:
        program, process = begun(homing, tmp_path)
    process.wait(PATIENCE)
    assert program.wait(PATIENCE) == 1


def test_a_program_that_says_nothing_keeps_nobody(homing_program: Path) -> None:
    """One that is killed before it has asked."""
    address = homing_program.read_text().split()[-2]
    subprocess.run(
        [sys.executable, "-c", f"import socket; socket.socket(socket.AF_UNIX).connect({address!r})"], check=True
    )
    done = subprocess.run([homing_program, "version"], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("module", LOADED)
def test_what_is_loaded_before_is_there(module: str) -> None:
    assert find_spec(module) is not None


def test_it_ignores_what_its_shell_ignores(homing_program: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program, process = begun(homing_program, tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    program.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    program.terminate()
    assert program.wait(PATIENCE) == 0, "as without it"
