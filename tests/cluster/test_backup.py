"""docs/operations/backup.md, command by command: what is backed up and restored answers as the original did."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.cluster.harness import Json, NodeProcess, devices
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "operations" / "backup.md").read_text("utf-8")
BLOCKS: Final = re.findall(r"^```sh\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOOKS: Final = {
    "HOMING_WEBHOOKS_SECRET_KEY": "0123456789abcdef" * 2,
    "HOMING_WEBHOOKS_NETWORKS": "127.0.0.0/8",
    "HOMING_WEBHOOKS_PLAIN_HTTP": "true",
}


def block(part: str) -> str:
    """The one block of the page that has these words."""
    (found,) = [one for one in BLOCKS if part in one]
    return str(found)


class Shell:
    """Somebody who types the commands of the page, in a folder of their own."""

    def __init__(self, folder: Path, program: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}
        path = f"{program.parent}:{os.environ['PATH']}"
        self.env = kept | {"PATH": path, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}

    def run(self, part: str, **env: str) -> str:
        return self.type(block(part), **env)

    def type(self, commands: str, **env: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self._folder,
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def shell(homing_program: Path, tmp_path: Path) -> Shell:
    return Shell(tmp_path, homing_program)


class Caller:
    """Asks one node, with a key."""

    def __init__(self, http: aiohttp.ClientSession, node: NodeProcess, key: str) -> None:
        self._http, self._node = http, node
        self._headers = {"Authorization": f"Bearer {key}"}

    async def ask(self, method: str, path: str, body: Json | list[Json] | None = None) -> tuple[int, Json]:
        url = f"{self._node.url}/v1/{path}"
        async with self._http.request(method, url, json=body, headers=self._headers) as response:
            return response.status, await response.json(content_type=None)

    async def known(self) -> bool:
        """Changed rules have come to the node."""
        return (await self.ask("GET", "me"))[0] == 200

    async def send(self, number: int) -> Json:
        body = {"method": "cover_open", "params": {"nonce": number}, "timeout": "60s"}
        status, command = await self.ask("POST", f"devices/SN{number}/commands", body)
        assert (status, command["state"]) == (200, "succeeded"), command
        return command

    async def everything(self, command: Json, *, cluster: bool) -> dict[str, Json]:
        """Read what must be the same after the restore; of one node alone, commands and webhooks are in its memory."""
        paths = {
            "events": "events?topic=fleet/%23&from=-1h",
            "value": "state/fleet/note",
            "principals": "principals",
            "keys": "keys",
            "devices": "devices",
        }
        if cluster:
            paths |= {"command": f"commands/{command['id']}", "list": "commands", "webhooks": "webhooks"}
        found = {name: await self.ask("GET", path) for name, path in paths.items()}
        assert {name: status for name, (status, _) in found.items() if status != 200} == {}
        found["events"][1].pop("cursor")  # it follows the clock
        for key in found["keys"][1]["keys"]:
            key.pop("last_used_at")  # likewise, and asking is a use
        return {name: body for name, (_, body) in found.items()}


@pytest.fixture(params=["sqlite", "postgresql"])
def access(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a directory, and that of the database into which it is restored."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'access.db'}"
        yield url, url
    else:
        if shutil.which("pg_dump") is None:
            pytest.skip("pg_dump is not installed")
        with PostgresProcess() as postgresql:
            yield postgresql.new_database(), postgresql.new_database()


def first_keys(shell: Shell, url: str) -> tuple[str, str]:
    """Return the first key of an administrator, and one of a service that commands."""
    admin = shell.type("homing access init", HOMING_ACCESS_URL=url).strip()
    return admin, shell.type("homing keys create ci --role operator", HOMING_ACCESS_URL=url).strip()


async def fill(http: aiohttp.ClientSession, node: NodeProcess, admin: str, ci: str, *, cluster: bool) -> Json:
    """Something of everything that a node keeps, and how it looks then."""
    boss, caller = Caller(http, node, admin), Caller(http, node, ci)
    await eventually(caller.known)
    command = await caller.send(1)
    assert (await boss.ask("POST", "events", [{"topic": "fleet/note", "data": {"n": 1}}]))[0] == 200
    assert (await boss.ask("PUT", "devices/SN1", {"profile": "dji", "note": "roof"}))[0] in (200, 201)
    if cluster:
        endpoint: Json = {"url": "http://127.0.0.1:9/hook", "events": ["command.failed"]}
        assert (await boss.ask("POST", "webhooks", endpoint))[0] == 201
    return {"command": command, "everything": await boss.everything(command, cluster=cluster)}


async def check(
    http: aiohttp.ClientSession, node: NodeProcess, admin: str, ci: str, before: Json, *, cluster: bool
) -> None:
    caller = Caller(http, node, ci)
    await eventually(caller.known)
    again = await Caller(http, node, admin).everything(before["command"], cluster=cluster)
    assert again == before["everything"]
    await caller.send(2)


async def test_a_cluster_is_restored(shell: Shell, access: tuple[str, str], tmp_path: Path) -> None:
    url, restored_url = access
    admin, ci = first_keys(shell, url)
    restored = RedisProcess()
    async with aiohttp.ClientSession() as http:
        with MosquittoProcess() as broker:
            async with devices(broker, lambda device, command: device.answer(command)):
                with RedisProcess() as redis:
                    env = HOOKS | {"HOMING_ACCESS_URL": url, "HOMING_EVENTS_URL": redis.node_url}
                    with NodeProcess("n1", redis, broker, module="app.cli", **env) as node:
                        before = await fill(http, node, admin, ci, cluster=True)
                        shell.run("--rdb", REDIS_URL=redis.url)
                        shell.run("access backup" if "sqlite" in url else "pg_dump", HOMING_ACCESS_URL=url)
                shell.run("dump.rdb", REDIS_DIR=str(restored.folder), REDIS_PORT=str(restored.port))
                restore_access(shell, restored_url, tmp_path)
                with restored:
                    env = HOOKS | {"HOMING_ACCESS_URL": restored_url, "HOMING_EVENTS_URL": restored.node_url}
                    with NodeProcess("n2", restored, broker, module="app.cli", **env) as node:
                        await check(http, node, admin, ci, before, cluster=True)
    shell.run("audit verify", HOMING_ACCESS_URL=restored_url)


def restore_access(shell: Shell, url: str, folder: Path) -> None:
    if "sqlite" in url:
        shell.run("install -m 600", ACCESS_FILE=str(folder / "access.db"))
    else:
        shell.run("pg_restore", HOMING_ACCESS_URL=url)


async def test_a_small_installation_is_restored(shell: Shell, tmp_path: Path) -> None:
    url, events, cold = f"sqlite:///{tmp_path / 'access.db'}", tmp_path / "events", tmp_path / "cold"
    admin, ci = first_keys(shell, url)
    cold.mkdir()
    (cold / "a.parquet").write_bytes(b"as it was")
    settings = {"HOMING_STORE_URL": "memory://", "HOMING_EVENTS_URL": f"rocks://{events}", "HOMING_ACCESS_URL": url}
    places = {"EVENTS_DIR": str(events), "COLD_DIR": str(cold)}
    async with aiohttp.ClientSession() as http:
        with MosquittoProcess() as broker, RedisProcess() as unused:
            async with devices(broker, lambda device, command: device.answer(command)):
                with NodeProcess("n1", unused, broker, module="app.cli", **settings) as node:
                    before = await fill(http, node, admin, ci, cluster=False)
                    assert node.stop() == 0
                shell.type("mkdir backup")
                for part in ('cp -a "$EVENTS_DIR" backup', 'cp -a "$COLD_DIR" backup', "access backup"):
                    shell.run(part, **places, HOMING_ACCESS_URL=url)
                shutil.rmtree(events)
                (cold / "a.parquet").unlink()
                for part in ('rm -rf "$EVENTS_DIR"', 'rm -rf "$COLD_DIR"'):
                    shell.run(part, **places)
                restore_access(shell, url, tmp_path)
                with NodeProcess("n1", unused, broker, module="app.cli", **settings) as node:
                    await check(http, node, admin, ci, before, cluster=False)
    assert (cold / "a.parquet").read_bytes() == b"as it was"
    shell.run("audit verify", HOMING_ACCESS_URL=url)


async def test_a_copy_of_redis_on_the_same_broker_leaves_the_original_alone(shell: Shell, tmp_path: Path) -> None:
    copy = RedisProcess()
    staging = HOOKS | {"HOMING_MQTT_SHARE_GROUP": "staging", "HOMING_WEBHOOKS_SECRET_KEY": "of-staging-" * 4}
    with MosquittoProcess() as broker, RedisProcess() as redis:
        async with devices(broker, lambda device, command: device.answer(command)), aiohttp.ClientSession() as http:
            with NodeProcess("n1", redis, broker, module="app.cli", **HOOKS) as node:
                caller = Caller(http, node, "")
                first = await caller.send(1)
                endpoint: Json = {"url": "http://127.0.0.1:9/hook", "events": ["command.succeeded"]}
                assert (await caller.ask("POST", "webhooks", endpoint))[0] == 201
                shell.run("--rdb", REDIS_URL=redis.url)
                shell.run("dump.rdb", REDIS_DIR=str(copy.folder), REDIS_PORT=str(copy.port))
                with copy:
                    shell.run("--scan", COPY_URL=copy.url)
                    with NodeProcess("n1", copy, broker, module="app.cli", **staging) as other:
                        stranger = Caller(http, other, "")
                        assert (await stranger.ask("GET", f"commands/{first['id']}"))[0] == 200
                        assert (await stranger.ask("GET", "webhooks"))[1]["webhooks"] == []
                        for number in range(20):
                            await caller.send(number)
                            await stranger.send(number)
