"""The primary that Sentinels name, and connections that go there and nowhere else.

Not redis-py's Sentinel: after a planned switch that one goes on with the old primary, whose writes are lost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import structlog
from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from app.core.redis_address import Place, RedisAddress, RedisTerms, parse_redis_url, shown_place
from app.runtime.tasks import end
from app.store.redis.driver.outages import outages_pass
from app.store.redis.driver.question import ANSWER_SECONDS, ASKING_OPTIONS, first_answers, opened, reply_of
from app.store.redis.driver.tls import TlsConnection, parsed

LOOK_SECONDS: Final = 1.0
"""The time after which they are asked again, and the primary whether it is one, beside what they tell unasked."""

_CHANNELS: Final = ("+switch-master", "+promoted-slave")
"""The channels on which Sentinels tell that another server is the primary, and, a moment earlier, that its successor
takes writes."""

Answer = tuple[int, Place]
"""The epoch of the latest fail-over that this Sentinel knows, and the primary since then."""

_log = structlog.get_logger(__name__)


class SentinelWatch:
    """One per event loop and URL. It looks as long as there are connections, and drops those that lead elsewhere."""

    def __init__(self, address: RedisAddress, terms: RedisTerms) -> None:
        self._address = address
        self._terms = terms
        self._connections: WeakSet[AbstractConnection] = WeakSet()
        self._primary: Place | None = None
        self._epoch = 0
        """The epoch of the latest fail-over that any of them has told of."""
        self._hint = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def find(self) -> Place:
        """Return where the primary is now; an error of redis-py that says what Sentinels answered."""
        asking = [asyncio.create_task(self._ask(seed)) for seed in self._address.seeds]
        try:
            answers, reasons = await first_answers(asking)
        finally:
            await end(asking)
        if not answers:
            raise RedisConnectionError(f"no Sentinel names the primary of {self._address.service}: {reasons}")
        epoch, place = max(answers)
        most = 2 * len(answers) > len(self._address.seeds)
        if epoch >= self._epoch or most:  # where most go back, all of them have begun anew
            self._epoch = epoch
        elif place != self._primary:
            raise RedisConnectionError(
                f"the only Sentinels that answer name {shown_place(place)}, and have missed the latest fail-over"
            )
        return place

    def joined(self, connection: AbstractConnection, place: Place) -> None:
        """The connection stands, and its server says that it is a primary."""
        self._connections.add(connection)
        self._moved(place)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="sentinel watch")

    def left(self, connection: AbstractConnection) -> None:
        """The connection has ended."""
        self._connections.discard(connection)
        watching = self._watching
        if watching is not None and watching is not asyncio.current_task() and not self._connections:
            watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        listening = [asyncio.create_task(self._listen(seed), name="sentinel news") for seed in self._address.seeds]
        try:
            while self._connections:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._hint.wait()
                self._hint.clear()
                with outages_pass():
                    await self._look()
        finally:
            if self._watching is asyncio.current_task():
                self._watching = None
            await end(listening)

    async def _look(self) -> None:
        place = await self.find()
        known = place == self._primary
        self._moved(place)
        # A new connection may have found the primary before this: then it is known, and others lead elsewhere still.
        await self._drop(lambda connection: _place_of(connection) != place)
        if known and await self._is_replica(place):
            await self._drop(lambda _: True)

    def _moved(self, place: Place) -> None:
        before, self._primary = self._primary, place
        if before not in (None, place):
            _log.warning("primary_moved", before=shown_place(before or place), now=shown_place(place))

    async def _drop(self, which: Callable[[AbstractConnection], bool]) -> None:
        for connection in [one for one in self._connections if which(one)]:
            with outages_pass():
                await connection.disconnect(nowait=True)

    async def _is_replica(self, place: Place) -> bool:
        """True if the server says so itself; False when it says nothing, as others notice that."""
        arguments = parsed(self._address.url_of(place))
        kind = arguments.pop("connection_class")
        async with opened(kind(**arguments, **ASKING_OPTIONS)) as connection:
            return await _role(connection) != b"master"

    async def _listen(self, seed: Place) -> None:
        while True:
            with outages_pass():
                async with opened(self._sentinel(seed)) as connection:
                    await connection.send_command("SUBSCRIBE", *_CHANNELS)
                    while True:
                        kind, *_ = await connection.read_response(disable_decoding=True, timeout=math.inf)
                        if kind == b"message":
                            self._hint.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, seed: Place) -> Answer:
        async with asyncio.timeout(ANSWER_SECONDS), opened(self._sentinel(seed)) as connection:
            place = await reply_of(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
            if place is None:
                raise ResponseError(f"it knows no service {self._address.service}")
            facts = await reply_of(connection, "SENTINEL", "MASTER", self._address.service)
            epoch = dict(zip(facts[::2], facts[1::2], strict=False)).get(b"config-epoch", b"0")
            return int(epoch), (place[0].decode(), int(place[1]))

    def _sentinel(self, seed: Place) -> AbstractConnection:
        arguments = parsed(self._address.sentinel_url(seed))
        kind = arguments.pop("connection_class")
        if self._terms.sentinel_password:
            arguments |= {"username": self._terms.sentinel_user or None, "password": self._terms.sentinel_password}
        found: AbstractConnection = kind(**arguments, **ASKING_OPTIONS)
        return found


_watches: Final[MutableMapping[asyncio.AbstractEventLoop, dict[tuple[str, RedisTerms], SentinelWatch]]] = (
    WeakKeyDictionary()
)


def watch_of(url: str, terms: RedisTerms) -> SentinelWatch:
    """The watch that all connections of this event loop to this URL share."""
    known = _watches.setdefault(asyncio.get_running_loop(), {})
    if (url, terms) not in known:
        known[url, terms] = SentinelWatch(parse_redis_url(url), terms)
    return known[url, terms]


class LedConnection(Connection):
    """A connection to the primary, wherever that is by now."""

    def __init__(self, *, url: str, terms: RedisTerms, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._url = url
        self._terms = terms

    async def _connect(self) -> None:
        self.host, self.port = await watch_of(self._url, self._terms).find()
        await super()._connect()

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's
        await super().on_connect_check_health(check_health)
        place = _place_of(self)
        if await _role(self) != b"master":
            raise RedisConnectionError(f"Sentinels name {shown_place(place)}, which is a replica still")
        watch_of(self._url, self._terms).joined(self, place)

    async def disconnect(self, *arguments: Any, **more: Any) -> None:
        watch_of(self._url, self._terms).left(self)
        await super().disconnect(*arguments, **more)


class LedTlsConnection(LedConnection, TlsConnection):
    """The same with TLS."""


def led_arguments(url: str, terms: RedisTerms) -> dict[str, Any]:
    """Return what `parsed` gives for other URLs."""
    address = parse_redis_url(url)
    arguments = parsed(address.url_of(address.seeds[0]))
    kind = LedTlsConnection if arguments["connection_class"] is TlsConnection else LedConnection
    return {**arguments, "connection_class": kind, "url": url, "terms": terms}


def _place_of(connection: AbstractConnection) -> Place:
    return getattr(connection, "host", ""), getattr(connection, "port", 0)


async def _role(connection: AbstractConnection) -> bytes:
    role: bytes = (await reply_of(connection, "ROLE"))[0]
    return role
