"""Figures of streams on real nodes, Redis and Mosquitto; docs/performance.md has what they showed.

python -m tests.cluster.stream_figures absent              commands to devices that nobody is subscribed for (B1)
python -m tests.cluster.stream_figures single              50 watchers of 10,000 commands while nodes are killed (B3)
python -m tests.cluster.stream_figures filtered            500 events a second, a resumed and a mute reader (B4)
python -m tests.cluster.stream_figures many                1,000 idle streams, and a stop with 500 open ones (B5)
python -m tests.cluster.stream_figures plain --before REV  what commands cost that nobody watches, against REV (B6)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import aiohttp

from homing_rig.bench.cluster import job_for, private_cluster, take_turn
from homing_rig.bench.options import BenchOptions
from homing_rig.bench.report import Turn
from tests.cluster.harness import Caller, Cluster, Device, Json, NodeProcess, caller, devices
from tests.cluster.stream_kills import single
from tests.cluster.stream_rig import REPORTS, events, judge, not_refused, say, sent, site
from tests.waiting import eventually

ALL = "/v1/commands/events"
MIB = 1024 * 1024
MORE = {"node-a": 5, "node-b": 5, "redis": 12}
"""By how much (%) what one follows may cost more."""


def p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


async def absent(count: int) -> None:
    with site(2) as cluster:
        async with caller(cluster) as client:
            states: Counter[str] = Counter()
            times = []
            for number in range(count + 20):
                url = f"{cluster.nodes[number % 2].url}/v1/devices/absent-{number}/commands"
                body = {"method": "cover_open", "one_way": number % 2 == 0, "if_offline": "fail"}
                began = perf_counter()
                async with client.session.post(url, json=body) as response:
                    told = await response.json(content_type=None)
                if number >= 20:  # connections, scripts and imports are warm
                    times.append(perf_counter() - began)
                    states[f"{response.status} {told.get('type', '').rpartition(':')[2]}"] += 1
                await asyncio.sleep(0.02)
    say(f"{count} commands to nobody, every second one one-way: {dict(states)}")
    say(f"  median {median(times) * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms")
    judge("p99", p99(times) * 1000, " ms", most=50)
    judge("409", states["409 device-not-listening"], least=count)


async def load(urls: list[str], broker: str, rate: float, seconds: float) -> None:
    """In a process of its own: commands whose devices report, so that there are so many events a second."""
    each = rate / (REPORTS + 1)

    def react(device: Device, command: Json) -> None:
        loop = asyncio.get_running_loop()
        for number in range(REPORTS):
            loop.call_later(0.1 * number, device.report, command, number * 5)
        loop.call_later(0.1 * REPORTS, device.answer, command)

    async with devices(At(broker), react), aiohttp.ClientSession() as session:  # type: ignore[arg-type]
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(round(seconds * each)):
                await asyncio.sleep(max(0.0, began + number / each - perf_counter()))
                group.create_task(post(session, urls[number % len(urls)], number))
        await asyncio.sleep(4)


@dataclass(frozen=True)
class At:
    """A broker that is there already."""

    url: str


async def post(session: aiohttp.ClientSession, url: str, number: int) -> None:
    body = {"method": "cover_open" if number % 2 else "cover_close", "if_offline": "send", "timeout": "30s"}
    target = f"{url}/v1/devices/dock-{number % 500}/commands"
    async with session.post(target, json=body, headers={"Prefer": "respond-async"}) as response:
        await not_refused(response)
        await response.read()


@dataclass
class Reader:
    """One who follows all commands: the ids it saw, and how long after the store each came (s)."""

    seen: dict[str, str] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    repeated: int = 0
    gaps: int = 0
    last: str = ""

    async def read(self, session: aiohttp.ClientSession, url: str, *, timed: bool = True) -> None:
        headers = {"Last-Event-ID": self.last} if self.last else {}
        async with session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(None)) as response:
            assert response.status == 200, await response.text()
            async for event in events(response):
                self.gaps += event.get("event") == "gap"
                self.last = event.get("id", self.last)
                if event.get("event") in ("progress", "outcome"):
                    self.repeated += event["id"] in self.seen
                    data = event["data"]
                    self.seen[event["id"]] = f"{data['command_id']}/{data['seq']}"
                    if timed:
                        at = datetime.fromisoformat(data["at"])
                        self.delays.append((datetime.now(UTC) - at).total_seconds())


async def filtered(rate: float, seconds: float, away: float) -> None:
    with site(2) as cluster:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            first, second = (f"{node.url}{ALL}" for node in cluster.nodes)
            whole, part, resumed = Reader(), Reader(), Reader()
            tasks = [
                asyncio.create_task(whole.read(session, first)),
                asyncio.create_task(
                    part.read(session, f"{second}?method=cover_o*&device=dock-1*&kind=outcome,progress")
                ),
            ]
            leaving = asyncio.create_task(resumed.read(session, first))
            await asyncio.sleep(1)
            generator = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.cluster.stream_figures", "load", "--rate", str(rate)),
                *("--seconds", str(seconds), "--broker", cluster.broker.url),
                *(word for node in cluster.nodes for word in ("--url", node.url)),
            )
            await asyncio.sleep(seconds / 4)
            leaving.cancel()
            await asyncio.wait([leaving])
            mute = asyncio.create_task(cut_off(cluster))
            await asyncio.sleep(away)
            tasks.append(asyncio.create_task(resumed.read(session, second, timed=False)))
            if await generator.wait():
                raise SystemExit("the load was not what it should be")
            with suppress(TimeoutError):
                await eventually(lambda: whole.seen.keys() <= resumed.seen.keys(), 60)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            missed = whole.seen.keys() - resumed.seen.keys()
            say(f"{len(whole.seen)} events in {seconds:g} s ({len(whole.seen) / seconds:.0f}/s)")
            for name, reader in (("all", whole), ("filtered, other node", part)):
                delays = [one * 1000 for one in reader.delays]
                say(f"  {name}: {len(delays)} events, median {median(delays):.0f} ms")
                judge(f"{name}, p99", p99(delays), " ms", most=150)
            say(f"  away for {away:g} s, on the other node: {resumed.repeated} repeated, {resumed.gaps} gaps")
            judge("missed by who was away", len(missed), most=0)
            await mute
            mute_gap = Reader()
            mute_gap.last = "1000-0.000"
            late = asyncio.create_task(mute_gap.read(session, first))
            await asyncio.sleep(1)
            late.cancel()
            judge("gaps told to who has an id of 1970", mute_gap.gaps, least=1, most=1)


async def cut_off(cluster: Cluster) -> None:
    """A reader that never reads: when it is cut off, and how much more its node grew meanwhile than the other one."""
    node = cluster.nodes[1]
    before, other, began = rss(node), rss(cluster.nodes[0]), perf_counter()
    with socket.create_connection(("127.0.0.1", node.port)) as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.sendall(f"GET {ALL} HTTP/1.1\r\nHost: 127.0.0.1:{node.port}\r\n\r\n".encode())
        most = before
        cut = 0
        while not cut:
            with suppress(urllib.error.HTTPError):  # a node with much to do may refuse to tell
                cut = (await asyncio.to_thread(cluster.counters, "stream.too_slow"))[1]
            most = max(most, rss(node))
            if perf_counter() - began > 170:
                say("  a mute reader was not cut off: MISSED")
                return
            await asyncio.sleep(0.2)
        most = max(most, rss(node))
    grown, usual = (most - before) / MIB, (rss(cluster.nodes[0]) - other) / MIB
    say(
        f"  a mute reader was cut off after {perf_counter() - began:.0f} s, its node had grown by {grown:.1f} MB, the "
        f"other one by {usual:.1f} MB"
    )
    judge("more growth with the mute reader", grown - usual, " MB", most=5)


def rss(node: NodeProcess) -> int:
    """Resident memory of a node, in bytes. `env` is replaced by what it starts, so the process is the node."""
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def many(idle: int, open_at_stop: int) -> None:
    with site(2, HOMING_API_MAX_STREAMS="5000") as cluster:
        async with devices(cluster.broker, lambda *_: None), caller(cluster) as client:
            identity = await sent(client, 1, Random(1))
            for name, path in (("of all commands", ALL), ("of one command", f"/v1/commands/{identity}/events")):
                async with AsyncExitStack() as stack:
                    await opened(stack, client, cluster.nodes[0], path, 20)
                    before = rss(cluster.nodes[0])
                    await opened(stack, client, cluster.nodes[0], path, idle)
                    grown = (rss(cluster.nodes[0]) - before) / MIB
                judge(f"{idle} idle streams {name}", grown, " MB", most=40)
                await asyncio.sleep(1)
            async with AsyncExitStack() as stack:
                streams = await opened(stack, client, cluster.nodes[1], ALL, open_at_stop)
                retries = [asyncio.create_task(retry_of(one)) for one in streams]
                began = perf_counter()
                os.kill(cluster.nodes[1].pid, signal.SIGTERM)
                told = await asyncio.gather(*retries)
                closed = perf_counter() - began
                await asyncio.to_thread(cluster.nodes[1].stop)
                ended = perf_counter() - began
            spread = [one / 1000 for one in told if one]
            say(
                f"SIGTERM with {open_at_stop} streams: {len(spread)} were told when to come back, all were closed "
                f"after {closed:.1f} s, the node had ended after {ended:.1f} s"
            )
            judge("streams that were closed in good order", len(spread), least=open_at_stop)
            judge("end of the node after", ended, " s", most=10)
            judge("they come back over", max(spread, default=0) - min(spread, default=0), " s", least=2.5)
            say(f"  at most {busiest(spread)} within 0.1 s")


def busiest(times: list[float]) -> int:
    return max(Counter(int(one * 10) for one in times).values(), default=0)


async def opened(
    stack: AsyncExitStack, client: Caller, node: NodeProcess, path: str, count: int
) -> list[aiohttp.ClientResponse]:
    async def one() -> aiohttp.ClientResponse:
        response = await stack.enter_async_context(
            client.session.get(f"{node.url}{path}", timeout=aiohttp.ClientTimeout(None))
        )
        assert response.status == 200
        await response.content.readline()  # it has begun
        return response

    found: list[aiohttp.ClientResponse] = []
    while len(found) < count:
        found += await asyncio.gather(*(one() for _ in range(min(50, count - len(found)))))
    return found


async def retry_of(response: aiohttp.ClientResponse) -> int:
    """What it said last of when to come back (ms); 0 when it broke instead of ending."""
    told = 0
    try:
        async for event in events(response):
            told = int(event.get("retry", told))
    except aiohttp.ClientError:
        return 0
    return told


@contextmanager
def revision(name: str) -> Iterator[Path]:
    """A folder with the `app` of a revision."""
    archive = subprocess.run(["git", "archive", name, "app"], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        yield Path(folder)


async def plain(before: str, rounds: int, seconds: float, *, watched: bool) -> None:
    """Two clusters take turns: that of a revision, and this one; nobody watches, or (`watched`) one follows all."""
    with revision(before) as folder, revision("HEAD") as here:
        async with AsyncExitStack() as stack:
            clusters = []
            for place in (folder, here):
                node = ("env", f"PYTHONPATH={place}", sys.executable, "-m", "app.cli", "serve")
                options = BenchOptions(rounds=rounds, seconds=seconds, node_command=node)
                cluster, docks = await stack.enter_async_context(private_cluster(options))
                clusters.append((cluster, job_for(options, cluster, docks)))
            if watched:
                session = await stack.enter_async_context(aiohttp.ClientSession())
                cluster = clusters[1][0]
                reader = asyncio.create_task(Reader().read(session, f"http://{cluster.host}:{cluster.port}{ALL}"))
                stack.callback(reader.cancel)
            turns: list[list[Turn]] = [[], []]
            for number in range(rounds):
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    cluster, job = clusters[which]
                    turns[which].append(await take_turn(cluster.load, job, cluster.measured))
    say(f"CPU per command, this against {before}{', one follows all' if watched else ''}; {rounds} pairs of turns:")
    pairs = list(zip(*turns, strict=True))
    for name in turns[0][0].cpu:
        ratios = sorted(now.cpu_per_command()[name] / then.cpu_per_command()[name] for then, now in pairs)
        quarter = len(ratios) // 4
        used = [median(turn.cpu_per_command()[name] for turn in side) for side in turns]
        say(
            f"  {name}: × {median(ratios):.3f}, half of the pairs × {ratios[quarter]:.3f} to "
            f"× {ratios[-1 - quarter]:.3f} ({used[0]:.1f} and {used[1]:.1f} µs)"
        )
        if name in MORE:
            more = MORE[name] if watched else 2
            judge(
                f"{name}, more than before", 100 * (median(ratios) - 1), " %", most=more, least=None if watched else -2
            )
    foreign = [turn.foreign for side in turns for turn in side]
    say(f"  other programs kept {median(foreign):.1f} CPUs busy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("absent", "single", "filtered", "many", "plain", "load"))
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--away", type=float, default=60.0)
    parser.add_argument("--before", default="HEAD~1")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--url", action="append", default=[])
    parser.add_argument("--broker", default="")
    options = parser.parse_args()
    work: dict[str, Any] = {
        "absent": lambda: absent(options.times),
        "single": lambda: single(options.commands, 50, 5.0),
        "filtered": lambda: filtered(options.rate, options.seconds, options.away),
        "many": lambda: many(1000, 500),
        "plain": lambda: plain(options.before, options.rounds, min(options.seconds, 3.0), watched=options.watched),
        "load": lambda: load(options.url, options.broker, options.rate, options.seconds),
    }
    asyncio.run(work[options.what]())


if __name__ == "__main__":
    main()
