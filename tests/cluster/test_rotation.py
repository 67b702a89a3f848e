"""The guide "Rotating secrets" in docs/operations/security.md, step by step, while commands are sent."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from tests.cluster.harness import Cluster, Device, Json, NodeProcess, caller, devices
from tests.services import DEPLOY, NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess

NEXT_USER, NEXT_PASSWORD = "homing-2", "the-next-one"


def reload_mosquitto(broker: MosquittoProcess, change: Callable[[str], str]) -> None:
    """Change its ACL, and let it read ACL and passwords again."""
    acl = broker.folder / "acl"
    acl.write_text(change(acl.read_text()))
    os.kill(broker.pid, signal.SIGHUP)


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


async def test_passwords_of_store_and_broker_are_changed_without_losing_a_command() -> None:
    with RedisProcess() as redis, MosquittoProcess() as broker:
        tool = shutil.which("mosquitto_passwd")
        if tool is None:
            pytest.skip("mosquitto_passwd is not installed")
        before = {"HOMING_STORE_URL": redis.node_url}
        after = {
            "HOMING_STORE_URL": f"redis://{NODE_USER}:{NEXT_PASSWORD}@127.0.0.1:{redis.port}/0",
            "HOMING_MQTT_USERNAME": NEXT_USER,
            "HOMING_MQTT_PASSWORD": NEXT_PASSWORD,
        }
        old, new = (
            NodeProcess(f"n{number}", redis, broker, module="app.cli", **env)
            for number, env in enumerate((before, after), start=1)
        )
        with old:
            async with (
                devices(broker, at_once),
                caller(Cluster(redis, broker, [old])) as client,
                Redis.from_url(redis.url) as admin,
            ):
                sending = asyncio.create_task(client.many(20, 2))
                # 1. The next password of the same user in Redis; the next user on the broker, with the same rules.
                await admin.execute_command("ACL", "SETUSER", NODE_USER, f">{NEXT_PASSWORD}")  # type: ignore[no-untyped-call]
                subprocess.run([tool, "-b", broker.folder / "passwords", NEXT_USER, NEXT_PASSWORD], check=True)
                rules = (DEPLOY / "mosquitto" / "acl").read_text().replace(f"user {NODE_USER}\n", f"user {NEXT_USER}\n")
                reload_mosquitto(broker, lambda acl: f"{acl}\n{rules.partition('# Devices')[0]}")
                await sending
                # 2. The nodes, one after the other.
                with new:
                    await asyncio.to_thread(old.stop)
                    # 3. What was in use before is taken away.
                    await admin.execute_command("ACL", "SETUSER", NODE_USER, f"<{NODE_PASSWORD}")  # type: ignore[no-untyped-call]
                    subprocess.run([tool, "-D", broker.folder / "passwords", NODE_USER], check=True)
                    reload_mosquitto(broker, lambda acl: acl)
                    client.cluster.nodes[:] = [new]
                    tally = await client.many(20, 2)
                assert tally.states == {"succeeded": 20}
                assert sending.result().states == {"succeeded": 20}
                assert redis.refusals() == ""
                with pytest.raises(Exception, match="invalid username-password"):
                    await Redis.from_url(redis.node_url).ping()
