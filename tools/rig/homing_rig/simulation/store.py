"""The store as nodes reach it: every call is a request, an effect that is whole, and a reply, and each may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.cluster.wakeup import NO_TRACE, WATCHED
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.reception import encode_reception
from app.core.commands.routing import Outcome, Recorded
from app.core.errors import StoreUnavailableError
from app.core.identifiers import PARTITIONS
from app.core.keys import node_channel
from app.runtime.telemetry import Fill
from app.store.commands import Finished, Joined, Registered
from app.store.memory.commands.store import MemoryStateStore
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.network import Connection, Link, Side
from homing_rig.simulation.redis import RedisModel

_Reply = TypeVar("_Reply")

PAUSE: Final = (0.01, 0.1)
"""Seconds between two tries of a call whose connection broke."""


class StoreHost:
    """The process in which the commands of all nodes, the cluster's keys and its channels live."""

    def __init__(self, loop: SimLoop, clock: Clock) -> None:
        self.up = True
        self.lane: Final = Lane("store")
        self.clock: Final = clock
        self.commands: Final = MemoryStateStore(clock, wake=self._wake, tell=self._tell)
        self.keys: Final = RedisModel(lambda: clock.monotonic() * 1000)
        self.loop: Final = loop
        self.lives = 0
        """The number of fail-overs: a repeated call finds no trace of the first one in another life."""
        self.tokens: Final[dict[str, str]] = {}
        """The token that shows a node that a wake-up for this command is true, as its home noted it."""

    def open_of(self, node_id: str) -> int:
        """The number of commands that have their home there and no outcome."""
        return len(at_once(self.commands.pending_of(node_id)))

    def held(self) -> int:
        """The number of commands that wait to be sent."""
        return len(at_once(self.commands.held()).entries)

    def untold_of(self, endpoint_id: str) -> int:
        """The number of events of which this endpoint is to be told."""
        webhooks = self.commands.webhooks
        return len(at_once(webhooks.outbox(range(PARTITIONS), 1))) + at_once(webhooks.waiting([endpoint_id]))[0]

    def _wake(self, node_id: str, outcome: Outcome) -> None:
        outcome = replace(outcome, token=self.tokens.get(outcome.command_id, ""))
        self.keys.publish(node_channel(node_id), encode_wake_up(outcome))

    def _tell(self, node_id: str, command_id: str) -> None:
        self.keys.publish(node_channel(node_id), WATCHED + command_id.encode())


def encode_wake_up(outcome: Outcome) -> bytes:
    """As the scripts write it (app/core/cluster/wakeup.py)."""
    receiver = f"{outcome.received_by or ''}{encode_reception(outcome.reception)}"
    fields = (outcome.command_id, outcome.state.value, str(outcome.finished_at), receiver)
    words = f"{outcome.trace or NO_TRACE} 1 {outcome.token}"
    return b"\0".join([*map(str.encode, fields), outcome.result or b"", outcome.error or b"", words.encode()])


class Wire:
    """The connection of one node to the store: made when it is needed, and made anew after it broke."""

    def __init__(self, host: StoreHost, link: Link, chance: Random) -> None:
        self._host = host
        self._link = link
        self._chance = chance
        self._connection: Connection | None = None
        self._asked: dict[asyncio.Future[Any], float] = {}
        """The instant at which each is given up."""
        self._gives_up_at = float("inf")

    async def ask(self, effect: Callable[[], _Reply], budget: float | None, *, again: bool = True) -> _Reply:
        """Have it done, and its reply. StoreUnavailableError when the budget (seconds) is over, or nobody tries again.

        After that it may have happened.
        """
        loop = self._host.loop
        ends = float("inf") if budget is None else loop.time() + budget
        while True:
            try:
                return await self._try(effect, ends)
            except ConnectionError as error:
                pause = self._chance.uniform(*PAUSE)
                if not again or loop.time() + pause >= ends:
                    raise StoreUnavailableError(f"the store did not answer: {error}") from None
                await asyncio.sleep(pause)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _try(self, effect: Callable[[], _Reply], ends: float) -> _Reply:
        loop = self._host.loop
        connection = self._connection or self._connect()
        reply: asyncio.Future[_Reply] = loop.create_future()
        self._asked[reply] = ends
        connection.to_server.send(self._serve, connection, effect, reply)
        if ends < self._gives_up_at:
            self._give_up_at(ends)
        try:
            return await reply
        finally:
            self._asked.pop(reply, None)

    def _connect(self) -> Connection:
        if not (self._host.up and self._link.up):
            raise ConnectionRefusedError("connection refused")
        connection: Connection

        def ended() -> None:
            if self._connection is connection:
                self._connection = None
                for reply in tuple(self._asked):
                    if not reply.done():
                        reply.set_exception(ConnectionResetError("connection reset"))

        here = Side(copy_context(), ended, float("inf"))
        there = Side(self._host.lane.context, lambda: None, float("inf"))
        self._connection = connection = Connection(self._host.loop, self._link, here, there)
        return connection

    def _serve(self, connection: Connection, effect: Callable[[], _Reply], reply: asyncio.Future[_Reply]) -> None:
        if not self._host.up:
            return
        try:
            answer: object = effect()
        except Exception as error:  # noqa: BLE001 - it is the reply
            connection.to_client.send(_fail, reply, error)
        else:
            connection.to_client.send(_settle, reply, answer)

    def _give_up_at(self, ends: float) -> None:
        self._gives_up_at = ends
        self._host.loop.call_at(ends, self._give_up, ends)

    def _give_up(self, at: float) -> None:
        """A connection on which nothing comes back is given up: it may be half open.

        One timer is enough for all that is asked: most of it is answered long before.
        """
        if at != self._gives_up_at:
            return
        late = [reply for reply, ends in self._asked.items() if ends <= at and not reply.done()]
        for reply in late:
            reply.set_exception(StoreUnavailableError("the store did not answer in time"))
        if late:
            self._let_go()
        self._gives_up_at = float("inf")
        left = min((ends for reply, ends in self._asked.items() if not reply.done()), default=float("inf"))
        if left < float("inf"):
            self._give_up_at(left)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            for other in tuple(self._asked):
                if not other.done():
                    other.set_exception(ConnectionResetError("the connection was given up"))


def _settle(reply: asyncio.Future[Any], answer: object) -> None:
    if not reply.done():
        reply.set_result(answer)


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()


def at_once(work: Coroutine[Any, Any, _Reply]) -> _Reply:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: _Reply = stop.value
        return result
    raise RuntimeError("the store in memory waits for something")


class SimStore:
    """A `StateStore` of one node. A try that is repeated does not act again, as the scripts know their own attempts."""

    def __init__(self, host: StoreHost, wire: Wire, budget: float, wake_key: WakeKey) -> None:
        self._wake_key = wake_key
        self._host = host
        self._wire = wire
        self._budget = budget
        store = host.commands
        self.states: Final = FarPart(self.far, store.states)
        self.webhooks: Final = FarPart(self.far, store.webhooks)
        self.changes: Final = FarPart(self.far, store.changes)
        self.fleets: Final = store.fleets
        """Nobody rolls anything out here, so no call of it is a request."""
        self.schedules: Final = store.schedules
        """Nobody writes a schedule here either."""
        self.starts: Final = store.starts
        """Nothing is forgotten where commands are held."""

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self.far, getattr(self._host.commands, name))

    async def far(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Do it at the host."""
        return await self._wire.ask(lambda: at_once(work(*arguments, **named)), self._budget)

    async def register(self, registration: Registration) -> Registered | Joined:
        token = self._wake_key.token(registration.command_id)

        def effect() -> Registered | Joined:
            self._host.tokens.setdefault(registration.command_id, token)
            return at_once(self._host.commands.register(registration))

        return await self._wire.ask(effect, self._budget)

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        done: dict[int, Finished] = {}

        def effect() -> Finished:
            host = self._host
            if host.lives not in done:
                finished = host.commands.finish(command_id, state, finisher, error, only_held=only_held)
                done[host.lives] = at_once(finished)
            return done[host.lives]

        return await self._wire.ask(effect, self._budget)

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        done: dict[int, Recorded] = {}

        def effect() -> Recorded:
            host = self._host
            if host.lives not in done:
                done[host.lives] = at_once(host.commands.respond(answer, receiver, open_only=open_only))
            return done[host.lives]

        return await self._wire.ask(effect, None)

    async def start(self) -> None:
        await self.ping()

    async def ping(self) -> None:
        await self._wire.ask(lambda: None, self._budget)

    async def close(self) -> None:
        self._wire.close()

    def fills(self) -> dict[str, Fill]:
        return {}


class FarPart:
    """A part of a store, reached over the same connection: `far` does what it is handed at the host."""

    def __init__(self, far: Callable[..., Coroutine[Any, Any, Any]], part: object) -> None:
        self._far = far
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self._far, getattr(self._part, name))


class Listening:
    """The connection of a listener of channels, with the calls of redis-py's that the product's listener makes."""

    def __init__(self, host: StoreHost, link: Link) -> None:
        self._host = host
        self._link = link
        self._connection: Connection | None = None
        self._heard: asyncio.Queue[tuple[bytes, bytes, bytes] | None] = asyncio.Queue()
        self._channel = ""

    async def connect(self) -> None:
        """ConnectionError when nobody answers."""
        await asyncio.sleep(2 * self._link.delay())
        if not (self._host.up and self._link.up):
            raise ConnectionRefusedError("connection refused")
        here = Side(copy_context(), lambda: self._heard.put_nowait(None), float("inf"))
        there = Side(self._host.lane.context, self._forget, 60.0)
        self._connection = Connection(self._host.loop, self._link, here, there)

    async def send_command(self, _subscribe: str, channel: str) -> None:
        """SUBSCRIBE."""
        self._channel = channel
        if self._connection is not None:
            self._connection.to_server.send(self._subscribe)

    async def read_response(self, timeout: float, *, disconnect_on_error: bool) -> tuple[bytes, bytes, bytes] | None:
        """The next message; None when none has come in time, ConnectionError when none can."""
        del disconnect_on_error
        try:
            async with asyncio.timeout(timeout):
                heard = await self._heard.get()
        except TimeoutError:
            return None
        if heard is None:
            raise ConnectionResetError("connection reset")
        return heard

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Close it."""
        del nowait
        if self._connection is not None:
            self._connection.close()

    def _subscribe(self) -> None:
        if self._host.up and self._connection is not None:
            self._host.keys.channels.setdefault(self._channel, {})[self._hear] = None
            self._connection.to_client.send(self._heard.put_nowait, (b"subscribe", self._channel.encode(), b""))

    def _hear(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.to_client.send(self._heard.put_nowait, (b"message", b"", data))

    def _forget(self) -> None:
        self._host.keys.channels.get(self._channel, {}).pop(self._hear, None)


class StorePlaces:
    """All connections of one process to the store."""

    def __init__(self, host: StoreHost, link: Link, chance: Random) -> None:
        self.wire: Final = Wire(host, link, chance)
        self.cluster: Final = Wire(host, link, chance)
        self.events: Final = Wire(host, link, chance)
        self.role: Final = Wire(host, link, chance)
        self.make_connection: Final = partial(Listening, host, link)
        """Makes a connection, as a pool of redis-py does."""
