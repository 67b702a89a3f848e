"""`homing up` as users run it: one process and one folder, killed and started again; and what it refuses."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from homing_rig.ports import lasting_port
from homing_rig.services import ServiceProcess
from tests.cluster.harness import Device, Json, devices
from tests.waiting import PATIENCE, eventually

KEY = re.compile(r"^homing_[0-9A-Z]{8}_\w+$", re.MULTILINE)


class UpProcess(ServiceProcess):
    """`homing up` in a process of its own."""

    def __init__(self, *options: str) -> None:
        super().__init__(sys.executable)
        self.data = self.folder / "data"
        self.broker = f"127.0.0.1:{lasting_port()}"
        self._options = options

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.data / "secrets" / "admin.key").read_text().strip()

    def _command(self) -> Sequence[str]:
        place = ["--data", str(self.data), "--mqtt", self.broker, "--api", f"127.0.0.1:{self.port}"]
        settings = ["HOMING_CLUSTER_DRAIN_DELAY=0ms", "PYTHONUNBUFFERED=1"]
        return ["env", *settings, self.binary, "-m", "app.cli", "up", *place, "--profile", "dji", *self._options]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE) as response:  # noqa: S310 - our own URL
                return bool(response.status == HTTPStatus.OK)
        except (urllib.error.URLError, OSError):
            return False


def answer(device: Device, command: Json) -> None:
    device.answer(command)


async def test_one_process_and_one_folder_outlive_a_kill() -> None:
    with UpProcess() as up:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session,
            devices(f"mqtt://{up.broker}", answer),
        ):

            async def call(method: str, path: str, body: Json | None = None, key: str | None = None) -> Json:
                headers = {"Authorization": f"Bearer {up.key if key is None else key}"}
                async with session.request(method, f"{up.url}{path}", json=body, headers=headers) as response:
                    return {"status": response.status, **await response.json()}

            body = {"method": "return_home", "timeout": "60s"}
            sent = await call("POST", "/v1/devices/SN1/commands", body)
            assert (sent["status"], sent["state"]) == (200, "succeeded")
            assert (await call("GET", "/v1/me", key=""))["status"] == 401
            assert (await call("GET", "/v1/me"))["principal"].startswith("admin")
            await eventually(lambda: "Ctrl-C ends it." in up.log_text)
            assert KEY.findall(up.log_text) == [up.key], "it is printed once"
            said = up.log_text.splitlines()[-5:]
            assert said[0] == f"Console   {up.url}/console/"
            assert f"HOMING_URL={up.url} HOMING_KEY=$(cat {up.data}/secrets/admin.key)" in said[1]
            assert "homing send" in said[2]
            assert "mosquitto_pub" in said[3]
            second = await asyncio.to_thread(run, "up", "--data", str(up.data), "--api", "127.0.0.1:0")
            assert second.returncode == 2, second.stderr
            assert re.search(rf"{up.data} is in use by process {up.pid} since 20", second.stderr)
            await asyncio.to_thread(up.kill)
            await asyncio.to_thread(up.start)
            assert (await call("GET", f"/v1/commands/{sent['id']}"))["state"] == "succeeded"
            assert KEY.findall(up.log_text) == [up.key], "and not again"
            assert await asyncio.to_thread(up.stop) == 0


async def test_open_asks_nobody_and_makes_no_key() -> None:
    with UpProcess("--open") as up:
        async with aiohttp.ClientSession() as session, session.get(f"{up.url}/v1/me") as response:
            assert (await response.json())["open"] is True
        assert not (up.data / "access.db").exists()
        assert not (up.data / "secrets" / "admin.key").exists()
        await eventually(lambda: "Ctrl-C ends it." in up.log_text)
        assert "HOMING_KEY" not in up.log_text


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def damaged_store(folder: Path) -> None:
    (folder / "store").mkdir(parents=True)
    (folder / "layout.json").write_text('{"layout": 1, "written_by": "0.3.0"}')
    (folder / "store" / "CURRENT").write_text("nonsense\n")


def damaged_directory(folder: Path) -> None:
    folder.mkdir()
    (folder / "layout.json").write_text('{"layout": 1, "written_by": "0.3.0"}')
    (folder / "access.db").write_bytes(b"nonsense" * 1000)


def nothing(folder: Path) -> None:
    del folder


@pytest.mark.parametrize(
    ("prepare", "options", "said"),
    [
        (damaged_store, [], "HOMING_STORE_URL: "),
        (damaged_directory, [], "access.db is damaged: it is no SQLite database; put a copy of it in its place"),
        (nothing, ["--mqtt", "0.0.0.0:{port}"], "0.0.0.0 can be reached from outside, and this broker does not"),
        (nothing, ["--profile", "none"], "HOMING_PROFILE"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, prepare: Callable[[Path], None], options: list[str], said: str
) -> None:
    prepare(tmp_path / "data")
    port = str(lasting_port())
    words = [one.format(port=port) for one in options]
    place = ["--data", str(tmp_path / "data"), "--mqtt", f"127.0.0.1:{port}", "--api", "127.0.0.1:0"]
    ended = run("up", *place, *words)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 3
