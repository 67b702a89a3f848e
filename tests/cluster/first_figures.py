"""The first minute with access, as docs/access.md has it, and how soon a node refuses to be open (A6)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.cluster.harness import NodeProcess, devices
from tests.cluster.stream_rig import judge, say
from tests.services import MosquittoProcess, RedisProcess

HOMING = (sys.executable, "-m", "app.cli")


def refused() -> float:
    """How many seconds a node takes to refuse an address that others can reach."""
    began = perf_counter()
    words = ("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it refuses
    done = subprocess.run([*HOMING, *words], capture_output=True, check=False)
    seconds = perf_counter() - began
    assert (done.returncode, b"this node does not authenticate its callers" in done.stderr) == (2, True), done
    return seconds


def homing(env: dict[str, str], *words: str) -> str:
    return subprocess.run([*HOMING, *words], env=os.environ | env, capture_output=True, check=True, text=True).stdout


async def first(times: int) -> None:
    """From nothing to a command that a key allows: what the machine takes of the minute that people have."""
    found: list[float] = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
            env = {"HOMING_ACCESS_URL": f"sqlite:///{Path(folder) / 'access.db'}"}
            node = NodeProcess("n1", redis, broker, module="app.cli", **env)
            async with devices(broker, lambda device, command: device.answer(command)):
                began = perf_counter()
                await asyncio.to_thread(homing, env, "access", "init")
                key = await asyncio.to_thread(homing, env, "keys", "create", "ci", "--role", "operator")
                with node:
                    caller = env | {"HOMING_KEY": key.strip(), "HOMING_URL": node.url}
                    sent = await asyncio.to_thread(homing, caller, "send", "dock-1", "cover_open")
                    found.append(perf_counter() - began)
                    assert "succeeded" in sent, sent
    refusals = [refused() for _ in range(times)]
    say(f"from `homing access init` to the first command with a key, {times} times: median {median(found):.1f} s")
    judge("the longest", max(found), " s", most=60)
    say(f"a node that would be open to others says so, {times} times: median {median(refusals):.2f} s")
    judge("the longest", max(refusals), " s", most=1)
