"""The console: which party it blames for troubles that were injected (C4), and what open pages cost a node (C9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any, Final

import aiohttp
from typer import Option

from app.core.overview import WARMING_UP_US
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig.figures.broker import cpu_seconds
from homing_rig.figures.calls import HEADERS
from homing_rig.figures.kit import FigureError, Findings, p99, paced
from homing_rig.figures.stream_events import ALL, events, site
from homing_rig.figures.streams import opened
from homing_rig.harness import Caller, Cluster, Device, Json, caller, devices
from homing_rig.patience import eventually
from homing_rig.statistics import median

EVERY: Final = 6.0
"""Seconds between two looks of a page at a node that has no stream of overviews."""
DRAWN: Final = 0.25
"""Seconds after which a page draws what a stream has told, at most."""
OVERVIEWS: Final = "/v1/overview/events"
"""The path at which a page follows the overview, which is all that it asks while nobody touches it."""
ON_SCREEN: Final = 15.0
FULL: Final = 20
"""The bound of open commands of a node that is to be filled."""
ASKED: Final = {"Homing-Request": "console"}
REPLIES: Final = "thing/product/+/services_reply"


@dataclass(frozen=True)
class Trouble:
    """A trouble that is done to a cluster, and the party whose it is."""

    name: str
    party: str
    run: Callable[[], AbstractAsyncContextManager[None]]
    """Inside it the trouble is there."""
    device: str | None = None
    """The device whose commands fail by it."""

    def blamed(self, overview: Json) -> str | None:
        """The party that the page blames for it; that of the device's failures too, where it is one of a device."""
        groups = [one for one in overview["trouble"] if one["newest"]["device_id"] == self.device]
        if self.device is not None and not any(one["party"] == self.party for one in groups):
            return groups[0]["party"] if groups else None
        return str(overview["verdict"]["party"] or "") or None


class Site:
    """Two nodes with docks that do as their names say, and a console at the first node."""

    def __init__(self, cluster: Cluster, client: Caller) -> None:
        self._cluster = cluster
        self._client = client

    async def overview(self) -> Json:
        """Read what the page would show now."""
        url = f"{self._cluster.nodes[0].url}/v1/overview"
        async with self._client.session.get(url, headers=ASKED) as answer:
            return dict(await answer.json())

    async def overviews(self) -> AsyncGenerator[Json, None]:
        """Follow what the page would show."""
        url = f"{self._cluster.nodes[0].url}{OVERVIEWS}"
        async with self._client.session.get(url, headers=ASKED, timeout=aiohttp.ClientTimeout(None)) as answer:
            async for one in events(answer):
                if one.get("event") == "overview":
                    yield dict(one["data"])

    async def calm(self) -> None:
        """Return once no part of the cluster is in trouble; failures of devices stay."""

        async def is_calm() -> bool:
            return (await self.overview())["verdict"]["party"] not in ("homing", "broker")

        await eventually(is_calm)

    async def send(self, device: str, count: int = 1, **members: Any) -> None:
        """Send commands, and return once each has its outcome."""
        body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", **members}
        url = f"{self._cluster.nodes[0].url}/v1/devices/{device}/commands"
        for _ in range(count):
            async with self._client.session.post(url, json=body, headers=HEADERS) as answer:
                await answer.read()

    def troubles(self) -> list[Trouble]:
        """The twelve. Parts of the cluster come first: what fails at devices is remembered for ten minutes.

        The canary is the first one, as for half a minute a trouble of the store excuses what does not come back.
        """
        broker, redis, other = self._cluster.broker, self._cluster.redis, self._cluster.nodes[1]
        return [
            Trouble("canary taken", "broker", self._canary_taken),
            Trouble("broker killed", "broker", lambda: undone(broker.kill, broker.restart)),
            Trouble("broker frozen", "broker", lambda: undone(broker.pause, broker.resume)),
            Trouble("Redis frozen", "homing", lambda: undone(redis.pause, redis.resume)),
            Trouble("node full", "homing", self._full),
            Trouble("node killed", "homing", lambda: undone(other.kill, other.start)),
            self._of("silent-1", "device silent"),
            self._of("refusing-1", "device refuses"),
            self._of("absent-1", "device absent", profile="homing", if_offline="fail"),
            self._of("late-1", "device late"),
            self._of("garbled-1", "device undecodable"),
            Trouble("wrong profile", "caller", self._wrong_profile, "dock-1"),
        ]

    def _of(self, device: str, name: str, **members: Any) -> Trouble:
        """Two commands to a device of this name."""
        return Trouble(name, "device", lambda: after(self.send(device, 2, **members)), device)

    @asynccontextmanager
    async def _wrong_profile(self) -> AsyncIterator[None]:
        """More commands than have failed at devices, to one that was heard to speak by another profile."""
        await self.send("dock-1", 4)
        await self.send("dock-1", 20, profile="homing", if_offline="fail")
        yield

    @asynccontextmanager
    async def _full(self) -> AsyncIterator[None]:
        url = f"{self._cluster.nodes[0].url}/v1/devices/silent-1/commands"
        body = {"method": "cover_open", "timeout": "10m", "if_offline": "send"}
        ids = []
        for _ in range(FULL - 1):
            async with self._client.session.post(url, json=body, headers=HEADERS) as answer:
                ids.append((await answer.json())["id"])
        yield
        for one in ids:
            async with self._client.session.post(f"{self._cluster.nodes[0].url}/v1/commands/{one}/cancel") as answer:
                await answer.read()

    @asynccontextmanager
    async def _canary_taken(self) -> AsyncIterator[None]:
        """Somebody else is in the group that shares answers, and keeps them."""
        options = MqttOptions.from_url(self._cluster.broker.url, client_id="taker")
        client = PahoMqttClient(options, counters=Counter())
        shared = [Subscription(one) for one in self._cluster.filters("n1") if one.endswith(REPLIES)]
        await client.start(shared, InboundDelivery.acknowledge)
        await client.wait_connected()
        try:
            yield
        finally:
            await client.stop()


@asynccontextmanager
async def after(sending: Awaitable[None]) -> AsyncIterator[None]:
    """Commands cannot be taken back."""
    await sending
    yield


@asynccontextmanager
async def undone(do: Callable[[], object], undo: Callable[[], object]) -> AsyncIterator[None]:
    """Do it, and undo it at the end, in a thread: services take their time."""
    await asyncio.to_thread(do)
    try:
        yield
    finally:
        await asyncio.to_thread(undo)


def obey(device: Device, command: Json) -> None:
    """Do what the name of the dock says."""
    match command["device_id"].partition("-")[0]:
        case "silent":
            return
        case "refusing":
            device.say(command, json.dumps({**reply_of(command), "data": {"result": 314_000}}).encode())
        case "garbled":
            device.say(command, b"\xff{")
        case "late":
            asyncio.get_running_loop().call_later(2.0, device.answer, command)
        case _:
            device.answer(command)


def reply_of(command: Json) -> Json:
    """The members of a command that its reply repeats."""
    return {name: command[name] for name in ("tid", "bid", "timestamp", "method")}


async def verdicts(
    findings: Findings,
    *,
    within: Annotated[float, Option(min=1, help="The seconds within which a party has to be named.")] = 45.0,
) -> None:
    """Twelve troubles, one after another: which party the console blames, and when."""
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(site(2, HOMING_COMMAND_MAX_PENDING=str(FULL)))
        client = await stack.enter_async_context(caller(cluster))
        await stack.enter_async_context(devices(cluster.broker, obey))
        there = Site(cluster, client)
        await asyncio.sleep(WARMING_UP_US / 1_000_000)  # canaries of younger nodes count for nothing
        right, wrong, times = 0, 0, list[float]()
        for trouble in there.troubles():
            await there.calm()
            async with trouble.run():
                took, overview = await named(there, trouble, within)
            right += took is not None
            wrong += took is None and trouble.blamed(overview) is not None
            if took is not None:
                times.append(took)
            when = "not named" if took is None else f"named after {took:.1f} s"
            findings.note(f"{trouble.name}: {trouble.party} {when}; the verdict: {overview['verdict']['text']}")
        findings.figure("troubles of which the right party was named", right, least=11)
        findings.figure("troubles of which another party was named", wrong, most=0)
        findings.spread("from the trouble to the name", times, " s")
        findings.figure(
            "the slowest, on a page that draws what the stream tells", max(times) + DRAWN, " s", most=ON_SCREEN
        )


async def named(there: Site, trouble: Trouble, within: float) -> tuple[float | None, Json]:
    """The seconds until the right party was blamed, None if it was not within the time; and the last overview."""
    began = perf_counter()
    overview = await there.overview()
    with suppress(TimeoutError):
        async with asyncio.timeout(within), aclosing(there.overviews()) as told:
            async for overview in told:
                if trouble.blamed(overview) == trouble.party:
                    return perf_counter() - began, overview
    return None, overview


async def cost(
    findings: Findings,
    *,
    consoles: Annotated[int, Option(min=1, help="The number of open consoles.")] = 50,
    rate: Annotated[float, Option(min=1, help="Commands a second while Home is open.")] = 500.0,
    seconds: Annotated[float, Option(min=EVERY, help="The length of each turn.")] = 30.0,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each kind.")] = 5,
    old: Annotated[bool, Option(help="Measure also pages of Home that look every six seconds.")] = False,
) -> None:
    """CPU of a node with many open consoles: on Home, and on Commands. A page that is hidden ends its stream."""
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(site(2))
        client = await stack.enter_async_context(caller(cluster))
        await stack.enter_async_context(devices(cluster.broker, Device.answer))
        for name, pages, each, most in (
            ("Home, no commands", (home, looking), 0.0, 1.0),
            (f"Home, {rate:g} commands/s", (home, looking), rate, 1.0),
            ("Commands, 50 commands/s", (commands,), 50.0, 4.0),
        ):
            more, slower, before = list[float](), list[float](), list[float]()
            for _ in range(rounds):
                alone = await turn(client, each, seconds, nobody, consoles)
                beside = await turn(client, each, seconds, pages[0], consoles)
                more.append(beside[0] - alone[0])
                slower.append(beside[1] / alone[1] if alone[1] else 1.0)
                findings.note(f"{name}: {alone[0]:.2f} % of a core without consoles, {beside[0]:.2f} % with them")
                for page in pages[1:] if old else ():
                    before.append((await turn(client, each, seconds, page, consoles))[0] - alone[0])
            findings.spread(f"{consoles} on {name}", more, " % of a core", most=most)
            if before:
                findings.spread(f"{consoles} on {name}, if they look every {EVERY:g} s", before, " % of a core")
            if each:
                findings.figure(f"{consoles} on {name}: p99 of commands", median(slower), " ×", most=1.05)


Page = Callable[[AsyncExitStack, Caller, int], Awaitable[None]]


async def nobody(_stack: AsyncExitStack, _client: Caller, _consoles: int) -> None:
    """No console is open."""


async def home(stack: AsyncExitStack, client: Caller, consoles: int) -> None:
    """Each console follows the overview."""
    await followed(stack, client, OVERVIEWS, consoles)


async def looking(stack: AsyncExitStack, client: Caller, consoles: int) -> None:
    """Each console reads the overview, and once more six seconds later."""

    async def look(number: int) -> None:
        await asyncio.sleep(EVERY * number / consoles)
        while True:
            async with client.session.get(f"{client.cluster.nodes[0].url}/v1/overview", headers=ASKED) as answer:
                if not answer.ok:
                    raise FigureError(f"a console was refused: {await answer.text()}")
                await answer.read()
            await asyncio.sleep(EVERY)

    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    for one in [tasks.create_task(look(number)) for number in range(consoles)]:
        stack.callback(one.cancel)


async def commands(stack: AsyncExitStack, client: Caller, consoles: int) -> None:
    """Each console follows all commands."""
    await followed(stack, client, ALL, consoles)


async def followed(stack: AsyncExitStack, client: Caller, path: str, consoles: int) -> None:
    """Each console reads this stream."""
    streams = await opened(stack, client, client.cluster.nodes[0], path, consoles)

    async def follow(stream: aiohttp.ClientResponse) -> None:
        async for _ in stream.content.iter_any():  # not by lines: commands are timed in this very loop
            pass

    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    for one in [tasks.create_task(follow(stream)) for stream in streams]:
        stack.callback(one.cancel)


async def turn(client: Caller, rate: float, seconds: float, page: Page, consoles: int) -> tuple[float, float]:
    """Percent of a core that the first node used meanwhile, and the p99 of commands (ms); 0 where none were sent."""
    taken: list[float] = []

    async def send(number: int) -> None:
        began = perf_counter()
        await client.command(number, f"SN{number % 50:04}", {})
        taken.append((perf_counter() - began) * 1000)

    pid = client.cluster.nodes[0].pid
    async with AsyncExitStack() as stack:
        await page(stack, client, consoles)
        before, began = cpu_seconds(pid), perf_counter()
        if rate:
            async with asyncio.TaskGroup() as group:
                async for number in paced(rate, round(rate * seconds)):
                    group.create_task(send(number))
        else:
            await asyncio.sleep(seconds)
        used = (cpu_seconds(pid) - before) / (perf_counter() - began) * 100
    return used, p99(taken) if taken else 0.0
