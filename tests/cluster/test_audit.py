"""The audit of real nodes whose PostgreSQL is stopped, and which are killed meanwhile."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import aiohttp

from app.audit.verification import verify
from app.core.access.keys import Key, make_key
from app.runtime.system import new_secret
from app.store.engine import open_directory
from homing_rig.directory import add_service, until_known
from homing_rig.figures.audit import read_record
from tests.cluster.harness import Cluster, cluster_of
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess
from tests.waiting import PATIENCE, eventually


async def until_all_are_kept(folder: Path, commands: Sequence[str]) -> None:
    """All of them wait on the disk."""

    def are_kept() -> bool:
        kept = b"".join(path.read_bytes() for path in folder.iterdir())
        return all(one.encode() in kept for one in commands)

    await eventually(are_kept)


async def send(session: aiohttp.ClientSession, cluster: Cluster, key: Key, count: int) -> list[str]:
    """The ids of commands that were accepted, by the nodes in turn."""
    found = []
    for number in range(count):
        url = f"{cluster.nodes[number % len(cluster.nodes)].url}/v1/devices/dock-{number}/commands"
        body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"}
        headers = {"Authorization": f"Bearer {key.text}", "Prefer": "respond-async"}
        async with session.post(url, json=body, headers=headers) as response:
            assert response.status == 202, await response.text()
            found.append((await response.json())["id"])
    return found


async def test_nothing_is_missing_after_a_stop_of_the_database_and_the_death_of_a_node(
    redis_server: RedisProcess, mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    with PostgresProcess() as postgresql:
        url, folder, file = postgresql.new_database(), tmp_path / "audit", tmp_path / "key"
        file.write_text(make_key(secrets.token_bytes).text)
        settings = {
            "HOMING_ACCESS_URL": url,
            "HOMING_ACCESS_MIGRATE": "true",
            "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
            "HOMING_AUDIT_DIR": str(folder),
            "HOMING_AUDIT_REQUIRED": "true",
        }
        directory = open_directory(url, new_cluster_id=new_secret, budget=timedelta(seconds=PATIENCE))
        with cluster_of(2, redis_server, mosquitto, **settings) as cluster:
            key = await add_service(directory, "caller")
            async with aiohttp.ClientSession() as session:
                await until_known(session, cluster, key)
                accepted = await send(session, cluster, key, 10)
                await asyncio.to_thread(postgresql.stop)
                away = await send(session, cluster, key, 60)
                await until_all_are_kept(folder, away)
                await asyncio.to_thread(cluster.nodes[0].kill)
                await asyncio.to_thread(postgresql.start)
                await asyncio.to_thread(cluster.nodes[0].start)
                accepted += away + await send(session, cluster, key, 10)
            async with asyncio.timeout(PATIENCE):
                while (found := (await read_record(directory.audit)).commands) != Counter(accepted):
                    assert not found - Counter(accepted)
                    await asyncio.sleep(0.1)
            assert not (await verify(directory.audit)).faults
        await directory.close()
        assert not any(path.stat().st_size for path in folder.iterdir())
