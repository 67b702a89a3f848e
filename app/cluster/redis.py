"""The cluster over Redis: who lives, as keys with an expiry; sessions to adopt; wake-ups over channels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import structlog

from app.cluster.channel import ChannelReader, carried, note
from app.cluster.directory import NodeInfo
from app.cluster.node_text import node_of, text_of
from app.cluster.redis_copies import RedisCopies
from app.cluster.scripts import cluster_scripts
from app.cluster.wakeups import ChannelHandlers
from app.core import keys
from app.core.clock import Clock
from app.core.cluster.charter import Charter
from app.core.errors import NodeIdTakenError, StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.tasks import end
from app.runtime.telemetry import Counters
from app.store.redis.driver.listener import HEARTBEAT, HEARTBEAT_SECONDS, Listener
from app.store.redis.driver.plain import FewCalls, few_calls

_LISTED: Final = "!"
"""The member of the list of nodes that says that the list has not been lost; no node id begins so."""
FEATURES: Final = "held approvals verified queues"
"""The features that nodes of this version know and those before it do not, with a blank between."""
CLAIMED: Final = "!"
"""The mark in front of an incarnation whose session is being adopted."""
TAKEN_POLL_SECONDS: Final = 0.2
MOST_LEFT: Final = 16
"""The sessions that a node remembers to have left, for a store that forgets them before they are adopted."""
STALE_MS: Final = round(2.5 * HEARTBEAT_SECONDS * 1000)
"""A lease that was not renewed for so long belongs to a node that is frozen, cut off or dead."""
RENEWALS: Final = 3
"""A lease is renewed so often at least within its time: once may fail, or be late."""
_DEMAND_MS: Final = 3_000
"""Nodes tell what they are asked for once a second: longer ago, it says nothing."""
ADOPTED_MS: Final = 10_000
"""The time for which an adoption is known: other survivors hear of the loss of the session as well, and later."""
MOST_NAMED: Final = 100
"""Leases that cannot be read, of which each is logged once."""


class RedisCluster:
    """A cluster over Redis. Damage that Redis does to the connections is repaired in the background and counted."""

    def __init__(
        self,
        url: str,
        *,
        lease: timedelta,
        session_life: timedelta,
        clock: Clock,
        counters: Counters,
        new_charter: Callable[[], Charter],
        handlers: ChannelHandlers,
        on_failure: Callable[[BaseException], None],
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        self._lease = lease.total_seconds()
        self._lease_ms = _milliseconds(lease)
        # A node that cannot say that its session is gone must not be forgotten before the broker forgets it.
        self._session_ms = _milliseconds(session_life + lease)
        self._clock = clock
        self._counters = counters
        self._new_charter = new_charter
        self._on_failure = on_failure
        self._listener = Listener(
            url,
            name="homing-wake-ups",
            clock=clock,
            counters=counters,
            heard=ChannelReader(handlers, counters).read,
            resubscribed=handlers.resubscribed,
            terms=terms,
        )
        self._redis: FewCalls = few_calls(
            url,
            scripts=cluster_scripts(),
            timeout=self._lease / 3,
            became_replica=self._listener.reconnect,
            counters=counters,
            terms=terms,
        )
        self.copies: Final = RedisCopies(self._redis)
        self._node: NodeInfo | None = None
        self._charter: Charter | None = None
        self._listed = False
        self._renewed_at = 0.0
        self._leased: frozenset[str] | None = None
        self._strained = False
        self._unreadable: set[str] = set()
        self._left: dict[NodeInfo, Charter | None] = {}
        self._lost = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger()

    @property
    def listening(self) -> bool:
        return self._listener.listening and self._clock.monotonic() - self._renewed_at < self._lease

    @property
    def leased(self) -> frozenset[str] | None:
        return self._leased

    @property
    def remembers(self) -> bool:
        return True

    @property
    def strained(self) -> bool:
        return self._strained

    async def charter(self) -> Charter:
        self._charter = await self._read_charter()
        return self._charter

    async def found_anew(self, copied: Charter) -> Charter:
        await self._redis.call("DEL", keys.NODES)
        self._charter = await self._read_charter(copied.group)
        return self._charter

    async def directory(self, own: str) -> str:
        return _text(await self._redis.run("directory", [keys.CLUSTER], own, self._session_ms))

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        patience = self._clock.monotonic() + self._lease + 1
        asked_at = self._clock.monotonic()
        while (holder := await self._take(node, replaces)) is not None:
            # A crashed incarnation holds its lease for a while; a living one renews it. What a node was told before it
            # was frozen says nothing of now.
            if asked_at > patience:
                held_by = self._decode(holder, node.node_id)
                self._log.info("node_id_taken", holder="unknown" if held_by is None else held_by.incarnation)
                raise NodeIdTakenError(node.node_id)
            await asyncio.sleep(TAKEN_POLL_SECONDS)
            asked_at = self._clock.monotonic()
        await self._tell_features(node)
        await self._note_again(node, replaces)
        await self._end_tasks()
        self._node = node
        self._lost = asyncio.Event()
        self._tasks = [
            self._begin(self._listener.run(keys.node_channel(node.node_id)), "cluster.listen"),
            self._begin(self._keep_lease(node, self._lost), "cluster.lease"),
        ]
        await self._listener.subscribed.wait()

    async def fenced(self) -> None:
        await self._lost.wait()

    async def still_member(self, client_id: str) -> None:
        node, lost = self._node, self._lost
        while True:
            with suppress(StoreUnavailableError):
                if node is not None and node.client_id == client_id:
                    if await self._renew(node):
                        return
                    lost.set()
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(TAKEN_POLL_SECONDS)

    async def drain(self) -> None:
        if self._node is not None:
            key = keys.draining(self._node.node_id)
            await self._redis.call("SET", key, self._node.incarnation, "PX", 10 * self._lease_ms)

    async def leave(self, *, session_kept: bool = False) -> None:
        try:
            await self._end_tasks()
            with suppress(StoreUnavailableError):
                await self._sign_off(session_kept=session_kept)
        finally:
            await self._redis.close()

    async def nodes(self) -> Sequence[NodeInfo]:
        ids = await self._ids()
        commands: list[tuple[str, ...]] = []
        for node_id in ids:
            commands.append(("MGET", keys.lease(node_id), keys.draining(node_id)))
            commands.append(("PTTL", keys.lease(node_id)))
        replies = await self._redis.call_many(commands)
        leases = {
            node_id: (_text(lease), draining, left)
            for node_id, (lease, draining), left in zip(ids, replies[::2], replies[1::2], strict=True)
            if lease is not None
        }
        self._leased = frozenset(leases)
        self._strained = any(left < self._lease_ms - STALE_MS for _, _, left in leases.values())
        found = []
        for node_id, (lease, draining, _) in leases.items():
            node = self._decode(lease, node_id)
            if node is not None and (draining is None or _text(draining) != node.incarnation):
                found.append(node)
        return found

    async def all_know(self, feature: str) -> bool:
        await self.nodes()
        leased = sorted(self._leased or ())
        return await self._knowing(feature, leased) == leased

    async def knowing(self, feature: str) -> Sequence[str]:
        return await self._knowing(feature, [one.node_id for one in await self.nodes()])

    async def _knowing(self, feature: str, node_ids: Sequence[str]) -> list[str]:
        replies = await self._redis.call_many([("GET", keys.knows(one)) for one in node_ids])
        told = zip(node_ids, replies, strict=True)
        return [one for one, reply in told if reply is not None and feature in _text(reply).split()]

    async def orphans(self) -> Sequence[NodeInfo]:
        ids = await self._ids()
        commands: list[tuple[str, ...]] = []
        for node_id in ids:
            commands.append(("GET", keys.lease(node_id)))
            commands.append(("HVALS", keys.sessions(node_id)))
        replies = await self._redis.call_many(commands)
        found = []
        for node_id, lease, sessions in zip(ids, replies[::2], replies[1::2], strict=True):
            left = (self._decode(_text(one).removeprefix(CLAIMED), node_id) for one in sessions if one != lease)
            found += [one for one in left if one is not None]
        return found

    async def note_forgotten(self, lost: NodeInfo) -> bool:
        arguments = [lost.client_id, f"{CLAIMED}{text_of(lost)}", self._session_ms]
        noted = bool(await self._run("note_forgotten", lost, arguments, adoption=True))
        if noted:  # a list that is lost is not begun anew for it, as that would hide the loss
            await self._redis.run("enlist", [keys.NODES], lost.node_id, self._session_ms, 1)
        return noted

    async def claim(self, orphan: NodeInfo, right: timedelta, *, lost: bool = False) -> bool:
        # A session that this node serves is alive, even if its lease ran out: to adopt it would end all that it hears.
        if self._node is None or orphan.client_id == self._node.client_id:
            return False
        arguments = [
            *(orphan.client_id, self._node.client_id, _milliseconds(right)),
            *("1" if lost else "0", self._session_ms),
        ]
        return bool(await self._run("claim", orphan, arguments, adoption=True))

    async def adopted(self, orphan: NodeInfo) -> None:
        if await self._run("adopted", orphan, [orphan.client_id, ADOPTED_MS], adoption=True):
            await self._redis.call("ZREM", keys.NODES, orphan.node_id)

    async def carry(self, node_id: str, secret: str) -> None:
        await self._redis.call("PUBLISH", keys.node_channel(node_id), carried(secret))

    async def note(self, node_id: str, what: bytes) -> None:
        await self._redis.call("PUBLISH", keys.node_channel(node_id), note(what))

    async def exchange(self, told: str) -> Sequence[str]:
        node = self._node
        if node is None:
            return ()
        others = sorted((self._leased or frozenset()) - {node.node_id})
        tell = ("SET", keys.limits(node.node_id), told, "PX", str(_DEMAND_MS))
        _, *heard = await self._redis.call_many([tell, *(("GET", keys.limits(one)) for one in others)])
        return [_text(one) for one in heard if one is not None]

    async def _sign_off(self, *, session_kept: bool) -> None:
        node, self._node = self._node, None
        if node is None:
            return
        nothing_left = await self._run("leave", node, [text_of(node), node.client_id, "1" if session_kept else "0"])
        await self._redis.call("DEL", keys.draining(node.node_id), keys.knows(node.node_id))
        if nothing_left:
            await self._redis.call("ZREM", keys.NODES, node.node_id)

    async def _take(self, node: NodeInfo, replaces: NodeInfo | None) -> str | None:
        """The incarnation that holds the lease; None when it is ours now."""
        asked_at = self._clock.monotonic()
        await self._enlist(node)
        arguments = [
            *(text_of(node), node.client_id, self._lease_ms, self._session_ms),
            *(("", "") if replaces is None else (text_of(replaces), replaces.client_id)),
        ]
        holder = await self._run("join", node, arguments)
        if holder is not None:
            return _text(holder)
        self._renewed_at = asked_at
        return None

    async def _note_again(self, node: NodeInfo, replaces: NodeInfo | None) -> None:
        """Note again which sessions this node has left: the store may have forgotten it before they were adopted."""
        for left, charter in tuple(self._left.items()):
            if charter != self._charter:
                await self._take(node, left)
                self._left[left] = self._charter
        if replaces is not None:
            self._left[replaces] = self._charter
            for oldest in tuple(self._left)[:-MOST_LEFT]:
                del self._left[oldest]

    async def _renew(self, node: NodeInfo) -> bool:
        asked_at = self._clock.monotonic()
        arguments = [text_of(node), node.client_id, self._lease_ms, self._session_ms]
        if not await self._run("renew", node, arguments):
            return False
        self._renewed_at = asked_at
        return True

    async def _keep_lease(self, node: NodeInfo, lost: asyncio.Event) -> None:
        """Show a sign of life, every heartbeat at least: the lease, the directory, and a message to our own channel."""
        while True:
            await asyncio.sleep(min(HEARTBEAT_SECONDS, self._lease / RENEWALS))
            try:
                if not await self._renew(node):
                    self._counters["lease.lost"] += 1
                    self._log.warning("lease_lost", lost=node.incarnation)
                    lost.set()
                    return
                # First what needs no other server of a Redis Cluster than the lease does.
                await self._redis.call("PUBLISH", keys.node_channel(node.node_id), HEARTBEAT)
                await self._tell_features(node)
                if self._charter not in (None, await self._read_charter()):
                    self._counters["charter.changed"] += 1
                    self._log.warning("charter_changed", reason="the store has lost what the nodes share")
                    lost.set()
                    return
                await self._enlist(node)  # nothing, where the list was lost since: the next round finds that
            except StoreUnavailableError as error:
                self._counters["lease.renewal_failed"] += 1
                self._log.debug("lease_not_renewed", reason=str(error))

    async def _tell_features(self, node: NodeInfo) -> None:
        """Beside the lease, which nodes of 0.2.0 read strictly. Where it is refused, nothing is held."""
        with suppress(StoreUnavailableError):
            await self._redis.call("SET", keys.knows(node.node_id), FEATURES, "PX", 2 * self._lease_ms)

    async def _enlist(self, node: NodeInfo) -> None:
        """A list that was there when the charter was read is never begun anew: its loss would be hidden."""
        await self._redis.run("enlist", [keys.NODES], node.node_id, self._session_ms, int(self._listed))

    async def _read_charter(self, copied_group: str = "") -> Charter:
        ours = self._new_charter()
        listed = await self._redis.call("ZSCORE", keys.NODES, _LISTED) is not None
        arguments = (ours.group, ours.key, self._session_ms, int(listed), copied_group)
        group, key, age_ms, known = await self._redis.run("charter", [keys.CLUSTER], *arguments)
        self._listed = bool(known)
        return Charter(_text(group), _text(key).encode(), timedelta(milliseconds=age_ms))

    async def _ids(self) -> list[str]:
        members = await self._redis.call("ZRANGE", keys.NODES, 0, -1)
        return sorted(_text(member) for member in members if member != _LISTED.encode())

    async def _run(self, script: str, node: NodeInfo, arguments: Sequence[object], *, adoption: bool = False) -> object:
        names = [keys.lease(node.node_id), keys.sessions(node.node_id)]
        if adoption:
            names.append(keys.adoption(node.node_id, node.client_id))
        reply: object = await self._redis.run(script, names, *arguments)
        return reply

    def _decode(self, text: str, node_id: str) -> NodeInfo | None:
        """An incarnation, None when it cannot be read: another version may write what this one does not know."""
        try:
            return node_of(text)
        except (ValueError, TypeError, KeyError) as error:
            self._counters["drop.unreadable_lease"] += 1
            if text not in self._unreadable and len(self._unreadable) < MOST_NAMED:
                self._unreadable.add(text)
                self._log.warning(
                    "lease_unreadable", key=keys.lease(node_id), reason=f"{type(error).__name__}: {error}"
                )
            return None

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_failure(error)

        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(ended)
        return task

    async def _end_tasks(self) -> None:
        await end(self._tasks)
        self._tasks = []


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))


def _text(reply: object) -> str:
    """A reply that is a string; its stated type depends on options that we do not set.

    Bytes that are no text become a text that names nobody: one torn write must not end a node.
    """
    return reply.decode("utf-8", "backslashreplace") if isinstance(reply, bytes) else str(reply)
