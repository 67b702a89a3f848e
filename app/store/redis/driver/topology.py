"""The map of slots of a Redis Cluster: asked of its members, and followed when it changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import structlog
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from app.core.redis_address import Place, RedisAddress, parse_redis_url, shown_place
from app.runtime.tasks import end
from app.store.redis.driver.outages import is_connection_error
from app.store.redis.driver.question import ANSWER_SECONDS, ASKING_OPTIONS, first_answers, opened, reply_of
from app.store.redis.driver.slots import SLOTS, SlotMap, parse_slots, slot_of
from app.store.redis.driver.tls import TlsConnection, parsed

LOOK_SECONDS: Final = 10.0
"""The time after which it is asked again while nothing seems to have changed."""
HINTED_SECONDS: Final = 0.1
"""The time that one look is behind the other at least."""
DISTURBED_SECONDS: Final = 0.2
"""The same while a primary is away."""
MOST_ASKED: Final = 16

View = tuple[bool, bool, int, SlotMap]
"""A member's answer: True if it has all slots, True if it sees the cluster work, the epoch that it knows, its map."""

_log = structlog.get_logger(__name__)


class SlotFollower(Protocol):
    """Told when slots are elsewhere."""

    @property
    def disturbed(self) -> bool:
        """True while a primary is away, or somebody waits for a slot."""

    def mapped(self, slots: SlotMap) -> None:
        """This is the map from now on."""


async def read_slots(address: RedisAddress, known: Sequence[Place] = ()) -> SlotMap:
    """The map as that member has it who knows the latest election; an error of redis-py says why there is none.

    A member that does not reach most primaries counts less: it may have counted up its epoch by itself.
    """
    asked = list(dict.fromkeys((*address.seeds, *known)))[:MOST_ASKED]
    tasks = [asyncio.create_task(_ask(address, one)) for one in asked]
    try:
        views, reasons = await first_answers(tasks)
    finally:
        await end(tasks)
    if not views:
        raise RedisConnectionError(f"no member of the Redis Cluster answers: {reasons}")
    whole, _, _, slots = max(views, key=lambda one: one[:3])
    if not whole:
        raise RedisConnectionError(f"the Redis Cluster serves {slots.covered} of {SLOTS} slots")
    return slots


async def _ask(address: RedisAddress, place: Place) -> View:
    arguments = parsed(address.url_of(place))
    kind = arguments.pop("connection_class")
    async with asyncio.timeout(ANSWER_SECONDS), opened(kind(**arguments, **ASKING_OPTIONS)) as connection:
        lines = (await reply_of(connection, "CLUSTER", "INFO")).decode(errors="replace").splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        slots = parse_slots(await reply_of(connection, "CLUSTER", "SLOTS"), place)
    works = facts.get("cluster_state") == "ok"
    return slots.whole, works, int(facts.get("cluster_current_epoch", "0")), slots


class SlotWatch:
    """One per event loop and URL. It looks as long as somebody follows."""

    def __init__(self, address: RedisAddress, chance: random.Random) -> None:
        self.slots: SlotMap | None = None
        """None until it was found."""
        self.reason = "its slots are not known yet"
        """The reason why it could not be read when it was asked last; empty if it could."""
        self._address = address
        self._chance = chance
        self._followers: list[SlotFollower] = []
        self._hint = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def follow(self, follower: SlotFollower) -> None:
        """Tell it of each map from now on, beginning with the present one."""
        self._followers.append(follower)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="slot watch")
        if self.slots is not None:
            follower.mapped(self.slots)

    def leave(self, follower: SlotFollower) -> Sequence[asyncio.Task[None]]:
        """Tell it no more. The tasks are to be ended."""
        if follower in self._followers:
            self._followers.remove(follower)
        watching = self._watching
        if watching is None or self._followers:
            return ()
        self._watching = None
        return [watching]

    def hint(self) -> None:
        """Something is not where it was: ask soon."""
        self._hint.set()

    def moved(self, places: Mapping[int, Place]) -> None:
        """A member says that others have these slots. All at once: a new map costs milliseconds."""
        slots = self.slots
        if slots is not None and any(slots.owners[slot] != place for slot, place in places.items()):
            self._is(slots.moved(places))
        self.hint()

    async def some_members(self, channel: str) -> Sequence[Place]:
        """The primaries, to subscribe at one of them, in an order of chance.

        The last is that by which this process publishes to the channel: at any other one, its own heartbeats come as
        the messages of all others do.
        """
        slots = self.slots
        if slots is None or self._watching is None:
            slots = await read_slots(self._address)
        places = list(slots.primaries)
        self._chance.shuffle(places)
        publisher = slots.owners[slot_of(channel)]
        return sorted(places, key=lambda one: one == publisher)

    async def _watch(self) -> None:
        while True:
            self._hint.clear()
            try:
                await self._look()
            except Exception as error:
                if not (is_connection_error(error) or isinstance(error, ValueError)):
                    raise
                if not self.reason:
                    _log.warning("slots_unknown", reason=str(error))
                self.reason = str(error) or type(error).__name__
            await asyncio.sleep(HINTED_SECONDS)
            disturbed = self.reason or any(one.disturbed for one in self._followers)
            seconds = DISTURBED_SECONDS if disturbed else LOOK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds * self._chance.uniform(0.8, 1.2)):
                    await self._hint.wait()

    async def _look(self) -> None:
        known = () if self.slots is None else (*self.slots.primaries, *self.slots.replicas)
        self._is(await read_slots(self._address, known))
        self.reason = ""

    def _is(self, slots: SlotMap) -> None:
        before, self.slots = self.slots, slots
        if before is not None and before.primaries != slots.primaries and set(before.primaries) != set(slots.primaries):
            _log.warning(
                "primaries_changed",
                before=[shown_place(one) for one in before.primaries if one not in slots.primaries],
                now=[shown_place(one) for one in slots.primaries if one not in before.primaries],
            )
        for follower in tuple(self._followers):
            follower.mapped(slots)


_watches: Final[MutableMapping[asyncio.AbstractEventLoop, dict[str, SlotWatch]]] = WeakKeyDictionary()


def slots_of(url: str) -> SlotWatch:
    """The watch that all of this event loop share who have this URL."""
    known = _watches.setdefault(asyncio.get_running_loop(), {})
    if url not in known:
        known[url] = SlotWatch(parse_redis_url(url), random.Random())
    return known[url]


class MemberConnection(Connection):
    """A connection to some primary of a cluster, for a subscription to `channel`."""

    def __init__(self, *, url: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.channel = ""
        self._url = url

    async def _connect(self) -> None:
        error: Exception | None = None
        for place in await slots_of(self._url).some_members(self.channel):
            self.host, self.port = place
            try:
                await super()._connect()
            except (RedisError, OSError, TimeoutError) as failure:
                slots_of(self._url).hint()
                error = failure
            else:
                return
        raise error or RedisConnectionError("the Redis Cluster has no primary")


class MemberTlsConnection(MemberConnection, TlsConnection):
    """The same with TLS."""


def member_arguments(url: str) -> dict[str, Any]:
    """Return what `parsed` gives for other URLs."""
    address = parse_redis_url(url)
    arguments = parsed(address.url_of(address.seeds[0]))
    kind = MemberTlsConnection if arguments["connection_class"] is TlsConnection else MemberConnection
    return {**arguments, "connection_class": kind, "url": url}
