"""Webhooks in Redis, over the connection for lists: no command waits behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import structlog

from app.core import keys
from app.core.identifiers import partition_of_command
from app.core.webhooks.deliveries import (
    FIRST_ENDING,
    KEPT_US,
    LATER_ENDINGS,
    MOST_KEPT,
    MOST_WAITING,
    Delivery,
    OutboxEntry,
    Progress,
    after,
    decode_delivery,
    decode_endpoint,
    encode_delivery,
    encode_endpoint,
)
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.places import FIRST, DeliveryPage, DeliveryPosition, part
from app.store.redis.driver.each_server import of_each_server
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import HOOK_AGAIN, HOOK_CLAIM, HOOK_ENQUEUE, HOOK_PUT, HOOK_SETTLE
from app.store.rules import micros

IDLE_MS: Final = 7 * 24 * 3_600_000
"""The time that a queue lives without a change: more than all attempts together take."""

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class RedisWebhooks:
    """See `app/core/keys.py` for the keys, and the header of each script for its step."""

    def __init__(self, lanes: Lanes) -> None:
        self.most_waiting = MOST_WAITING
        self.most_kept = MOST_KEPT
        self._lanes = lanes

    async def endpoints(self) -> Sequence[Endpoint]:
        found = await self._call("HVALS", keys.WEBHOOKS)
        return sorted(_readable(found, decode_endpoint), key=lambda one: one.id)

    async def put_endpoint(self, endpoint: Endpoint, before: Endpoint | None) -> bool:
        known = b"" if before is None else encode_endpoint(before)
        reply = await self._lanes.run_for_list(HOOK_PUT, [keys.WEBHOOKS], endpoint.id, known, encode_endpoint(endpoint))
        return bool(reply == 1)

    async def remove_endpoint(self, endpoint_id: str) -> bool:
        removed = await self._call("HDEL", keys.WEBHOOKS, endpoint_id)
        await self._call("DEL", *keys.webhook(endpoint_id))
        return bool(removed == 1)

    async def outbox(self, partitions: Sequence[int], most: int) -> Sequence[OutboxEntry]:
        replies = await self._of_each([keys.outbox(one) for one in partitions], "ZRANGE", 0, most - 1)
        return [OutboxEntry.read(one.decode()) for reply in replies if isinstance(reply, list) for one in reply]

    async def forget(self, notices: Sequence[OutboxEntry]) -> None:
        await self._lanes.call_for_list(
            [("ZREM", keys.outbox(partition_of_command(one.command_id)), one.member) for one in notices]
        )

    async def enqueue(self, endpoint_id: str, delivery: Delivery) -> bool:
        reply = await self._lanes.run_for_list(
            HOOK_ENQUEUE,
            keys.webhook(endpoint_id),
            delivery.event_id,
            encode_delivery(delivery),
            self.most_waiting,
            IDLE_MS,
        )
        return bool(reply == 1)

    async def claim(self, endpoint_id: str, most: int, hold: timedelta) -> Sequence[Delivery]:
        found = await self._lanes.run_for_list(
            HOOK_CLAIM,
            keys.webhook(endpoint_id),
            most,
            micros(hold),
            FIRST_ENDING,
            *LATER_ENDINGS,
        )
        return list(_readable(found, decode_delivery))

    async def settle(self, endpoint_id: str, delivery: Delivery) -> int:
        reply = await self._lanes.run_for_list(
            HOOK_SETTLE,
            keys.webhook(endpoint_id),
            delivery.event_id,
            encode_delivery(delivery),
            "" if delivery.delay is None else delivery.delay,
            int(delivery.progress is Progress.DELIVERED),
            self.most_kept,
            KEPT_US,
            IDLE_MS,
            *after(delivery.event_id),
        )
        return int(reply)

    async def again(self, endpoint_id: str, event_id: str) -> bool:
        names = keys.webhook(endpoint_id)
        data = await self._call("HGET", names[2], event_id)
        for known in _readable([] if data is None else [data], decode_delivery):
            waits = replace(known, progress=Progress.WAITING, next_at=None)
            return bool(await self._lanes.run_for_list(HOOK_AGAIN, names, event_id, data, encode_delivery(waits)) == 1)
        return False

    async def deliveries(self, endpoint_id: str, limit: int, behind: DeliveryPosition = FIRST) -> DeliveryPage:
        shown, more = part(await self._places(endpoint_id, behind, limit + 1), limit)
        events, ids = keys.webhook(endpoint_id)[2], [one.event_id for one in shown]
        found = await self._call("HMGET", events, *ids) if ids else []
        return DeliveryPage(list(_readable((one for one in found if one is not None), decode_delivery)), more)

    async def _places(self, endpoint_id: str, behind: DeliveryPosition, most: int) -> list[DeliveryPosition]:
        """The first `most` behind this one at least, or all."""
        due, ended, *_ = keys.webhook(endpoint_id)
        at, size = behind.at, ("WITHSCORES", "LIMIT", 0, most)
        # Those with the same instant come again: so many as are claimed together.
        reads: list[tuple[str | int, ...]] = [
            ("ZRANGEBYSCORE", due, at, at, "WITHSCORES"),
            ("ZRANGEBYSCORE", due, f"({at}", "+inf", *size),
            ("ZREVRANGEBYSCORE", ended, "+inf", "-inf", *size),
        ]
        if behind.ended:
            reads = [
                ("ZREVRANGEBYSCORE", ended, at, at, "WITHSCORES"),
                ("ZREVRANGEBYSCORE", ended, f"({at}", "-inf", *size),
            ]
        found: list[DeliveryPosition] = []
        for asked, reply in zip(reads, await self._lanes.replies_for_list(reads), strict=True):
            found += (
                DeliveryPosition(ended=asked[1] == ended, at=int(score), event_id=one.decode())
                for one, score in zip(reply[::2], reply[1::2], strict=True)
            )
        return [one for one in found if one.follows(behind)]

    async def waiting(self, endpoint_ids: Sequence[str]) -> Sequence[int]:
        replies = await self._of_each([keys.webhook(one)[0] for one in endpoint_ids], "ZCARD")
        return [one if isinstance(one, int) else 0 for one in replies]

    async def keep(self, endpoint_id: str, duration: timedelta | None) -> None:
        ms, names = IDLE_MS if duration is None else micros(duration) // 1000, keys.webhook(endpoint_id)
        failing = [] if duration is not None else [("DEL", names[3])]
        await self._lanes.call_for_list([*failing, *(("PEXPIRE", one, ms) for one in names)])

    async def _of_each(self, names: Sequence[str], command: str, *rest: int) -> list[Any]:
        """The reply of a command for each of these keys; None for those of a server that is away."""

        async def ask(places: Sequence[int]) -> list[Any]:
            return await self._lanes.call_for_list([(command, names[place], *rest) for place in places])

        return await of_each_server(names, self._lanes.server_of, ask)

    async def _call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        (reply,) = await self._lanes.replies_for_list([command])
        return reply


def _readable(found: Iterable[bytes], decode: Callable[[bytes], _T]) -> Iterable[_T]:
    """Return what this version can read; the rest is left alone."""
    for data in found:
        try:
            yield decode(data)
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("unreadable_webhook_entry", reason=f"{type(error).__name__}: {error}"[:200])
