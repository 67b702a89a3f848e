"""Measures what a plain command costs its home node, beside other versions: `python -m homing_rig.bench.command_cost`.

Clusters of several working trees and the no-op reference take turns in one run, as other programs use the machine as
well. Each round begins with another one. The CPU time of a process is divided by the good answers of the turn.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console
from rich.table import Table

from homing_rig.bench.cluster import Cluster, job_for, private_cluster, take_turn, warm_up
from homing_rig.bench.generator import LoadJob
from homing_rig.bench.options import BenchError, BenchOptions
from homing_rig.bench.processes import Running, Worker
from homing_rig.bench.report import Turn
from homing_rig.statistics import median
from homing_rig.turns import in_turns

NOW: Final = "this"
NO_OP: Final = "no-op"
PARTS: Final = ("node-a", "node-b", "redis")


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that take turns, and its turns. `home` is the process whose CPU is compared."""

    name: str
    home: str
    load: Worker
    job: LoadJob
    measured: Sequence[Running]
    turns: list[Turn] = field(default_factory=list)

    async def take_turn(self) -> None:
        """Put the load on it."""
        self.turns.append(await take_turn(self.load, self.job, self.measured))

    def costs(self) -> list[float]:
        """Microseconds of CPU of `home` for each command, by turn."""
        return [turn.cpu_per_command()[self.home] for turn in self.turns]

    def rates(self) -> list[float]:
        """Good answers in a second, by turn."""
        return [turn.load.per_second for turn in self.turns]


@asynccontextmanager
async def sides(trees: Mapping[str, Path | None], seconds: float) -> AsyncIterator[list[Side]]:
    """Clusters of all trees (None is what is installed) and the no-op, running and warm."""
    async with AsyncExitStack() as stack:
        found: list[Side] = []
        clusters: list[Cluster] = []
        for name, tree in trees.items():
            code = () if tree is None else ("env", f"PYTHONPATH={tree}")
            options = BenchOptions(
                seconds=seconds, node_command=(*code, sys.executable, "-P", "-m", "app.cli", "serve")
            )
            cluster, devices = await stack.enter_async_context(private_cluster(options))
            clusters.append(cluster)
            found.append(Side(name, "node-a", cluster.load, job_for(options, cluster, devices), cluster.measured))
        no_op, port = await clusters[0].processes.no_op()
        load, job = found[0].load, replace(found[0].job, port=port, check="ok")
        reference = Side(NO_OP, NO_OP, load, job, [no_op, load])
        await warm_up(reference.load, reference.job)
        yield [*found, reference]


async def measure(
    trees: Mapping[str, Path | None], rounds: int, seconds: float, *, watched: bool = False
) -> list[Side]:
    """All sides in turn, so many times. `watched`: one reader follows all commands of this version."""
    async with sides(trees, seconds) as found, asyncio.TaskGroup() as group:  # a reader that fails ends the run
        readers = [group.create_task(follow(side.job)) for side in found if watched and side.name == NOW]
        for side in in_turns(found, rounds):
            await side.take_turn()
        for reader in readers:
            reader.cancel()
        return found


async def follow(job: LoadJob) -> None:
    """Read the stream of all commands of a node, without end."""
    url = f"http://{job.host}:{job.port}/v1/commands/events"
    endless = aiohttp.ClientTimeout(None)
    async with aiohttp.ClientSession(timeout=endless, raise_for_status=True) as session, session.get(url) as response:
        async for _ in response.content.iter_any():
            pass
    raise BenchError(f"the stream at {url} has ended")


def render(found: Sequence[Side]) -> Table:
    """For people. Each turn is compared with that of this version, and of the no-op, in the same round."""
    table = Table(title="CPU of a command, µs: medians over the rounds", caption="in brackets: half of the rounds")
    headings = ("", *PARTS, "home node to this", "commands/s", "to the no-op", "other programs, CPUs")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    this = next(side for side in found if side.name == NOW)
    no_op = next(side for side in found if side.name == NO_OP)
    for side in found:
        used = [turn.cpu_per_command() for turn in side.turns]
        table.add_row(
            side.name,
            *(f"{median([cpu[part] for cpu in used]):.0f}" if part in used[0] else "-" for part in PARTS),
            ratios_text(side.costs(), this.costs()),
            f"{median(side.rates()):,.0f}",
            ratios_text(side.rates(), no_op.rates()),
            f"{median([turn.foreign for turn in side.turns]):.1f}",
        )
    return table


def ratios_text(values: Sequence[float], others: Sequence[float]) -> str:
    """The median of the ratios of pairs, and between which ones half of them are."""
    ratios = sorted(value / other for value, other in zip(values, others, strict=True))
    quarter = len(ratios) // 4
    return f"{median(ratios):.3f} [{ratios[quarter]:.3f}, {ratios[-1 - quarter]:.3f}]"


def _tree(text: str) -> tuple[str, Path]:
    name, separator, folder = text.partition("=")
    if not separator or name in (NOW, NO_OP, "") or not (Path(folder) / "app").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=FOLDER with the `app` of another version")
    return name, Path(folder).resolve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--against", type=_tree, action="append", default=[], help="NAME=FOLDER, a working tree")
    parser.add_argument("--watched", action="store_true", help="let one reader follow all commands of this version")
    given = parser.parse_args()
    everything: dict[str, Path | None] = {**dict(given.against), NOW: None}
    compared = asyncio.run(measure(everything, given.rounds, given.seconds, watched=given.watched))
    Console(width=140).print(render(compared))
