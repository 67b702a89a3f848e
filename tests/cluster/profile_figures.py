"""CPU of a plain command on a node that speaks one profile and on one that speaks all; docs/performance.md has it.

python -m tests.cluster.profile_figures --turns 20 --commands 500

Two nodes, each with a Redis and a Mosquitto of its own. They take turns, as what else the machine does is the same for
both only then. The CPU time is that of the node's process: its own threads, user and system.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from statistics import median, quantiles

import psutil  # type: ignore[import-untyped] # it has no types

from app.profiles.loader import load_profiles
from tests.cluster.harness import Caller, Cluster, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess

IN_FLIGHT = 8


class OpenBroker(MosquittoProcess):
    """Everybody may do everything."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        (self.folder / "acl").write_text("pattern readwrite #\n")
        return command


def every_profile() -> str:
    """Without those whose topics begin with `$`: Mosquitto gives shared subscriptions no message of them."""
    found = load_profiles(shipped=["all"])
    return ",".join(name for name, one in found.items() if not any(topic.text.startswith("$") for topic in one.heard))


async def figures(turns: int, commands: int) -> None:
    every = every_profile()
    with ExitStack() as machines:
        clusters = [_site(machines, shipped) for shipped in ("dji", every)]
        processes = [_process(cluster) for cluster in clusters]
        async with AsyncExitStack() as stack:
            for cluster in clusters:
                await stack.enter_async_context(devices(cluster.broker, lambda device, command: device.answer(command)))
            callers = [await stack.enter_async_context(caller(cluster)) for cluster in clusters]
            for one in callers:
                await one.many(commands, IN_FLIGHT)
            ratios, spent = [], ([0.0] * turns, [0.0] * turns)
            for turn in range(turns):
                for which in (0, 1) if turn % 2 else (1, 0):
                    spent[which][turn] = await _cpu(processes[which], callers[which], commands)
                ratios.append(spent[1][turn] / spent[0][turn])
    for shipped, times in zip(("1 profile", f"{every.count(',') + 1} profiles"), spent, strict=True):
        say(f"{shipped}: median {median(times) * 1e6:.0f} µs of CPU a command")
    low, _, high = quantiles(ratios, n=4)
    say(f"ratio of {turns} alternating turns of {commands} commands: median {median(ratios):.3f}, half of them")
    say(f"  between {low:.3f} and {high:.3f}")


def _site(machines: ExitStack, shipped: str) -> Cluster:
    broker, redis = machines.enter_context(OpenBroker()), machines.enter_context(RedisProcess())
    return machines.enter_context(cluster_of(1, redis, broker, HOMING_PROFILES_SHIPPED=shipped))


def _process(cluster: Cluster) -> psutil.Process:
    process = cluster.nodes[0]._process
    assert isinstance(process, subprocess.Popen)
    return psutil.Process(process.pid)


async def _cpu(process: psutil.Process, client: Caller, commands: int) -> float:
    """Seconds for each command."""
    before = process.cpu_times()
    tally = await client.many(commands, IN_FLIGHT)
    after = process.cpu_times()
    assert tally.states["succeeded"] == commands, tally.states
    return float(after.user + after.system - before.user - before.system) / commands


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--commands", type=int, default=500)
    given = parser.parse_args()
    asyncio.run(figures(given.turns, given.commands))
