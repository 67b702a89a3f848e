"""A queue beside NATS JetStream and RabbitMQ: CPU of the servers, events a second, and delays, in turns of one run."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Annotated, Any, Final, Protocol

import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from homing_rig.figures.kit import Findings, p99, paced
from homing_rig.figures.queue_delays import RATE
from homing_rig.figures.queues import CONSUMERS, DEVICES, QueueBench, QueueTurns, bench, data_of
from homing_rig.peers import NatsProcess, RabbitProcess
from homing_rig.programs import NotInstalledError
from homing_rig.services import ServiceProcess
from homing_rig.statistics import median
from homing_rig.turns import in_turns

BATCH: Final = 128
"""Events that are fetched at once, or are on their way to a consumer that has not acknowledged them."""
FETCH_SECONDS: Final = 5
"""The time for which a fetch of JetStream waits until it has a whole batch; delays are measured with batches of one."""
OWN: Final = "queue"
_SUBJECT: Final = "site"
_STREAM: Final = "bench"

Handle = Callable[[bytes], None]
"""Takes the data of an event; it is acknowledged afterwards."""


class Peer(Protocol):
    """A queue of another server, empty at first, over connections of its own."""

    async def publish(self, topic: str, data: bytes) -> None:
        """Publish, and return when the server has confirmed it."""

    async def consume(self, handle: Handle, batch: int) -> None:
        """Handle events, so many of which are on their way at once, and acknowledge each, until cancelled."""


class _JetStream:
    """A stream in files, with explicit acknowledgement, and one pull consumer that all share."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - nats-py is optional
        self._stream = stream

    async def publish(self, topic: str, data: bytes) -> None:
        await self._stream.publish(f"{_SUBJECT}.{topic}", data)

    async def consume(self, handle: Handle, batch: int) -> None:
        pulled = await self._stream.pull_subscribe(f"{_SUBJECT}.>", durable="workers", stream=_STREAM)
        while True:
            try:
                messages = await pulled.fetch(batch, timeout=FETCH_SECONDS)
            except TimeoutError:
                if _is_cancelled():
                    raise asyncio.CancelledError from None
                continue
            for one in messages:
                handle(one.data)
                await one.ack()


def _is_cancelled() -> bool:
    """Return whether this task is to end: a fetch that is cancelled just as its time is over says only the latter."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@asynccontextmanager
async def _jetstream(server: NatsProcess) -> AsyncIterator[Peer]:
    nats = importlib.import_module("nats")
    client = await nats.connect(server.url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=_STREAM, subjects=[f"{_SUBJECT}.>"], retention="workqueue")
        try:
            yield _JetStream(stream)
        finally:
            await stream.delete_stream(_STREAM)
    finally:
        await client.close()


class _Rabbit:
    """A durable queue of a kind, persistent messages, and a channel for each consumer."""

    def __init__(self, library: Any, connection: Any, channel: Any) -> None:  # noqa: ANN401 - aio-pika is optional
        self._library = library
        self._connection = connection
        self._channel = channel

    async def publish(self, topic: str, data: bytes) -> None:
        message = self._library.Message(data, delivery_mode=self._library.DeliveryMode.PERSISTENT, headers={"t": topic})
        await self._channel.default_exchange.publish(message, routing_key=_STREAM)

    async def consume(self, handle: Handle, batch: int) -> None:
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=batch)
        queue = await channel.get_queue(_STREAM)

        async def handled(message: Any) -> None:  # noqa: ANN401 - as above
            handle(message.body)
            await message.ack()

        await queue.consume(handled)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await channel.close()


@asynccontextmanager
async def _rabbit(server: RabbitProcess, kind: str) -> AsyncIterator[Peer]:
    library = importlib.import_module("aio_pika")
    connection = await library.connect(server.url)
    try:
        channel = await connection.channel(publisher_confirms=True)
        arguments = {"x-queue-type": "quorum"} if kind == "quorum" else {"x-queue-version": 2}
        queue = await channel.declare_queue(_STREAM, durable=True, arguments=arguments)
        try:
            yield _Rabbit(library, connection, channel)
        finally:
            await queue.delete(if_unused=False, if_empty=False)
    finally:
        await connection.close()


Opening = Callable[[], AbstractAsyncContextManager[Peer]]
PUBLISHED_TOGETHER: Final = 128
"""Messages that are published without waiting for each other."""


class PeerBench:
    """One server of others, and how a queue of it is opened."""

    def __init__(self, server: ServiceProcess, opened: Opening, events: int) -> None:
        self._server = server
        self._opened = opened
        self._events = events

    async def turn(self, turns: QueueTurns) -> None:
        """Publish the events, and let ten consumers handle and acknowledge them."""
        async with self._opened() as peer:
            begun = self._cpu()
            for at in range(0, self._events, PUBLISHED_TOGETHER):
                numbers = range(at, min(at + PUBLISHED_TOGETHER, self._events))
                await asyncio.gather(*(peer.publish(_topic(one), data_of(one).encode()) for one in numbers))
            before, started, handled = self._cpu(), perf_counter(), asyncio.Semaphore(0)
            async with _consumers(peer, lambda _: handled.release(), BATCH):
                for _ in range(self._events):
                    await handled.acquire()
            passed = perf_counter() - started
            turns.publishing.append((before - begun) * 1e6 / self._events)
            turns.redis.append((self._cpu() - before) * 1e6 / self._events)
            turns.rate.append(self._events / passed)

    async def delays(self, seconds: float) -> list[float]:
        """Publish at a steady rate; the time until a consumer has each (ms)."""
        found: list[float] = []
        total = round(RATE * seconds)
        complete = asyncio.Event()

        def heard(data: bytes) -> None:
            found.append((perf_counter() - float(data)) * 1000)
            if len(found) == total:
                complete.set()

        async with self._opened() as peer, _consumers(peer, heard, 1), asyncio.TaskGroup() as publishing:
            async for number in paced(RATE, total):
                publishing.create_task(_published(peer.publish(_topic(number), b"%r" % perf_counter())))
            await complete.wait()
        return found

    def _cpu(self) -> float:
        used = psutil.Process(self._server.pid).cpu_times()
        return float(used.user + used.system)


async def _published(confirmed: Awaitable[None]) -> None:
    await confirmed


@asynccontextmanager
async def _consumers(peer: Peer, handle: Handle, batch: int) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:  # one that fails ends the turn
        tasks = [group.create_task(peer.consume(handle, batch)) for _ in range(CONSUMERS)]
        try:
            yield
        finally:
            for one in tasks:
                one.cancel()


def _topic(number: int) -> str:
    return f"dock-{number % DEVICES}"


def start_peers(findings: Findings, stack: AsyncExitStack, events: int) -> dict[str, PeerBench]:
    """Start those that are on this machine, and say which are not."""
    found: dict[str, PeerBench] = {}
    try:
        importlib.import_module("nats")
        nats = stack.enter_context(NatsProcess())
        found["JetStream"] = PeerBench(nats, lambda: _jetstream(nats), events)
    except (NotInstalledError, ImportError) as error:
        findings.note(f"NATS JetStream is not compared: {error}")
    try:
        importlib.import_module("aio_pika")
        rabbit = stack.enter_context(RabbitProcess())
        found["RabbitMQ, classic queue"] = PeerBench(rabbit, lambda: _rabbit(rabbit, "classic"), events)
        found["RabbitMQ, quorum queue"] = PeerBench(rabbit, lambda: _rabbit(rabbit, "quorum"), events)
    except (NotInstalledError, ImportError) as error:
        findings.note(f"RabbitMQ is not compared: {error}")
    return found


async def peers(
    findings: Findings,
    *,
    events: Annotated[int, Option(min=1000, help="The number of events that each turn settles.")] = 20_000,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each side.")] = 3,
    nodes: Annotated[int, Option(min=1, help="The number of nodes.")] = 3,
    seconds: Annotated[float, Option(min=1, help="For how long delays are measured.")] = 10.0,
) -> None:
    """Ten consumers on a queue, beside ten of JetStream and of RabbitMQ, where these are installed."""
    async with AsyncExitStack() as stack:
        others = start_peers(findings, stack, events)
        own = await stack.enter_async_context(bench(nodes, events))
        await own.fill()
        await own.rest()
        turns = {side: QueueTurns() for side in (OWN, *others)}
        for side in in_turns(tuple(turns), rounds):
            await _turn(own, others, side, turns[side])
        for side, found in turns.items():
            _tell(findings, side, found)
        for name in others:
            peer = median(turns[name].redis)
            ratio = (median(turns[OWN].redis) + median(turns[OWN].nodes)) / peer
            findings.figure(f"all CPU for a settled event to that of {name}", ratio, " ×", most=1.0)
        for name, delays in [
            (OWN, await own.delays(seconds)),
            *[(name, await other.delays(seconds)) for name, other in others.items()],
        ]:
            findings.spread(f"publish to handler, {name}", delays, " ms")
            findings.figure(f"p99 of that, {name}", p99(delays), " ms")


async def _turn(own: QueueBench, others: dict[str, PeerBench], side: str, turns: QueueTurns) -> None:
    if side == OWN:
        await own.turn(turns, BATCH, ordered=False)
    else:
        await others[side].turn(turns)


def _tell(findings: Findings, side: str, turns: QueueTurns) -> None:
    server = "Redis" if side == OWN else "the server"
    findings.spread(f"{server} for a settled event, {side}", turns.redis, " µs")
    if turns.nodes:
        findings.spread(f"nodes for a settled event, {side}", turns.nodes, " µs")
    if turns.publishing:
        findings.spread(f"{server} for a published event, {side}", turns.publishing, " µs")
    findings.spread(f"events settled a second, {side}", turns.rate)
