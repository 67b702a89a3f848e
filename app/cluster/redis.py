"""The cluster over Redis: who lives, as keys with an expiry; sessions to adopt; wake-ups over `listener.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from importlib import resources
from typing import Any, Final, TypeVar, cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.cluster.base import NodeInfo, WakeUpHandler
from app.cluster.listener import HEARTBEAT, HEARTBEAT_SECONDS, Listener
from app.core import keys
from app.core.clock import Clock
from app.core.errors import NodeIdTakenError, StoreUnavailableError
from app.observability import Counters
from app.tasks import end

CLAIMED: Final = "!"
"""In front of an incarnation whose session is being adopted."""
TAKEN_POLL_SECONDS: Final = 0.2

_ERRORS: Final = (RedisError, OSError, TimeoutError)
_Reply = TypeVar("_Reply")


class RedisCluster:
    """What Redis does to the connections is repaired in the background and counted."""

    def __init__(
        self,
        url: str,
        *,
        lease: timedelta,
        session_life: timedelta,
        clock: Clock,
        counters: Counters,
        on_wake: WakeUpHandler,
        on_resubscribed: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._lease = lease.total_seconds()
        self._lease_ms = _milliseconds(lease)
        # A node that cannot say that its session is gone must not be forgotten before the broker forgets it.
        self._session_ms = _milliseconds(session_life + lease)
        self._clock = clock
        self._counters = counters
        self._on_failure = on_failure
        self._listener = Listener(url, clock=clock, counters=counters, on_wake=on_wake, on_resubscribed=on_resubscribed)
        timeout = self._lease / 3
        self._redis: Redis = Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )
        self._scripts = {name: self._redis.register_script(_lua(name)) for name in _SCRIPTS}
        self._node: NodeInfo | None = None
        self._renewed_at = 0.0
        self._leased: frozenset[str] | None = None
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

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        patience = self._clock.monotonic() + self._lease + 1
        while (holder := await self._take(node, replaces)) is not None:
            # A crashed incarnation holds its lease for a while; a living one renews it.
            if self._clock.monotonic() > patience:
                self._log.info("node_id_taken", holder=_decode(holder).incarnation)
                raise NodeIdTakenError(node.node_id)
            await asyncio.sleep(TAKEN_POLL_SECONDS)
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
            await self._ask(self._redis.set(key, self._node.incarnation, px=10 * self._lease_ms))

    async def leave(self, *, session_kept: bool = False) -> None:
        try:
            await self._end_tasks()
            with suppress(StoreUnavailableError):
                await self._sign_off(session_kept=session_kept)
        finally:
            await self._redis.aclose()

    async def nodes(self) -> Sequence[NodeInfo]:
        ids = await self._ids()
        pipeline = self._redis.pipeline(transaction=False)
        for node_id in ids:
            pipeline.execute_command("MGET", keys.lease(node_id), keys.draining(node_id))
        alive = [
            (_decode(_text(lease)), draining)
            for lease, draining in await self._ask(pipeline.execute())
            if lease is not None
        ]
        self._leased = frozenset(node.node_id for node, _ in alive)
        return [node for node, draining in alive if draining is None or _text(draining) != node.incarnation]

    async def orphans(self) -> Sequence[NodeInfo]:
        ids = await self._ids()
        pipeline = self._redis.pipeline(transaction=False)
        for node_id in ids:
            pipeline.execute_command("GET", keys.lease(node_id))
            pipeline.execute_command("HVALS", keys.sessions(node_id))
        replies = await self._ask(pipeline.execute())
        found = []
        for lease, sessions in zip(replies[::2], replies[1::2], strict=True):
            found += [_decode(_text(one).removeprefix(CLAIMED)) for one in sessions if one != lease]
        return found

    async def claim(self, orphan: NodeInfo, right: timedelta) -> bool:
        if self._node is None:
            return False
        arguments = [orphan.client_id, self._node.client_id, _milliseconds(right)]
        return bool(await self._run("claim", orphan, arguments, adoption=True))

    async def adopted(self, orphan: NodeInfo) -> None:
        if await self._run("adopted", orphan, [orphan.client_id], adoption=True):
            await self._ask(self._redis.zrem(keys.NODES, orphan.node_id))

    async def _sign_off(self, *, session_kept: bool) -> None:
        node, self._node = self._node, None
        if node is None:
            return
        nothing_left = await self._run("leave", node, [_encode(node), node.client_id, "1" if session_kept else "0"])
        await self._ask(self._redis.delete(keys.draining(node.node_id)))
        if nothing_left:
            await self._ask(self._redis.zrem(keys.NODES, node.node_id))

    async def _take(self, node: NodeInfo, replaces: NodeInfo | None) -> str | None:
        """The incarnation that holds the lease; None when it is ours now."""
        asked_at = self._clock.monotonic()
        await self._enlist(node)
        arguments = [
            *(_encode(node), node.client_id, self._lease_ms, self._session_ms),
            "" if replaces is None else _encode(replaces),
        ]
        holder = await self._run("join", node, arguments)
        if holder is not None:
            return _text(holder)
        self._renewed_at = asked_at
        return None

    async def _renew(self, node: NodeInfo) -> bool:
        asked_at = self._clock.monotonic()
        arguments = [_encode(node), node.client_id, self._lease_ms, self._session_ms]
        if not await self._run("renew", node, arguments):
            return False
        self._renewed_at = asked_at
        return True

    async def _keep_lease(self, node: NodeInfo, lost: asyncio.Event) -> None:
        """Show a sign of life every heartbeat: the lease, the directory, and a message to our own channel."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                if not await self._renew(node):
                    self._counters["lease.lost"] += 1
                    self._log.warning("lease_lost", lost=node.incarnation)
                    lost.set()
                    return
                await self._enlist(node)
                await self._ask(self._redis.publish(keys.node_channel(node.node_id), HEARTBEAT))
            except StoreUnavailableError as error:
                self._counters["lease.renewal_failed"] += 1
                self._log.debug("lease_not_renewed", reason=str(error))

    async def _enlist(self, node: NodeInfo) -> None:
        """Keep the directory, from which nodes that left nothing behind drop out."""
        now = await self._now_ms()
        await self._ask(self._redis.zadd(keys.NODES, {node.node_id: now + self._session_ms}))
        await self._ask(self._redis.zremrangebyscore(keys.NODES, "-inf", now))
        await self._ask(self._redis.pexpire(keys.NODES, self._session_ms))

    async def _ids(self) -> list[str]:
        members = await self._ask(self._redis.zrange(keys.NODES, 0, -1))
        return sorted(_text(member) for member in members)

    async def _now_ms(self) -> int:
        seconds, microseconds = await self._ask(self._redis.time())
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def _run(self, script: str, node: NodeInfo, arguments: Sequence[object], *, adoption: bool = False) -> object:
        names = [keys.lease(node.node_id), keys.sessions(node.node_id)]
        if adoption:
            names.append(keys.adoption(node.node_id, node.client_id))
        return await self._ask(self._scripts[script](keys=names, args=cast("Sequence[Any]", arguments)))

    async def _ask(self, reply: Awaitable[_Reply]) -> _Reply:
        try:
            return await reply
        except _ERRORS as error:
            raise StoreUnavailableError(f"Redis did not answer the cluster: {error}") from None

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


_SCRIPTS: Final = ("join", "renew", "leave", "claim", "adopted")


def _lua(name: str) -> str:
    return (resources.files("app.cluster") / "lua" / f"{name}.lua").read_text()


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))


def _encode(node: NodeInfo) -> str:
    return json.dumps(asdict(node), sort_keys=True)


def _decode(text: str) -> NodeInfo:
    facts = json.loads(text)
    return NodeInfo(**facts | {"filters": tuple(facts["filters"])})


def _text(reply: object) -> str:
    """A reply that is a string; its stated type depends on options that we do not set."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)
