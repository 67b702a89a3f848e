"""Webhooks in a folder: those in memory, each step of which is on the disk when it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from app.core.webhooks.deliveries import Delivery, OutboxEntry
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.places import FIRST, DeliveryPage, DeliveryPosition
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.webhooks import MemoryWebhooks

T = TypeVar("T")


class Journalled(Protocol):
    """A step on the store in memory, which returns when what it has changed is on the disk."""

    async def __call__(self, work: Callable[[MemoryStateStore], Awaitable[T]]) -> T: ...


class RocksWebhooks:
    """`app/store/webhooks.py`. A claim ends with the process that made it, so it is not on the disk."""

    def __init__(self, change: Journalled) -> None:
        self._change = change

    async def endpoints(self) -> Sequence[Endpoint]:
        return await self._do(lambda one: one.endpoints())

    async def put_endpoint(self, endpoint: Endpoint, before: Endpoint | None) -> bool:
        return await self._do(lambda one: one.put_endpoint(endpoint, before))

    async def remove_endpoint(self, endpoint_id: str) -> bool:
        return await self._do(lambda one: one.remove_endpoint(endpoint_id))

    async def outbox(self, partitions: Sequence[int], most: int) -> Sequence[OutboxEntry]:
        return await self._do(lambda one: one.outbox(partitions, most))

    async def forget(self, notices: Sequence[OutboxEntry]) -> None:
        await self._do(lambda one: one.forget(notices))

    async def enqueue(self, endpoint_id: str, delivery: Delivery) -> bool:
        return await self._do(lambda one: one.enqueue(endpoint_id, delivery))

    async def claim(self, endpoint_id: str, most: int, hold: timedelta) -> Sequence[Delivery]:
        return await self._do(lambda one: one.claim(endpoint_id, most, hold))

    async def settle(self, endpoint_id: str, delivery: Delivery) -> int:
        return await self._do(lambda one: one.settle(endpoint_id, delivery))

    async def again(self, endpoint_id: str, event_id: str) -> bool:
        return await self._do(lambda one: one.again(endpoint_id, event_id))

    async def deliveries(self, endpoint_id: str, limit: int, behind: DeliveryPosition = FIRST) -> DeliveryPage:
        return await self._do(lambda one: one.deliveries(endpoint_id, limit, behind))

    async def waiting(self, endpoint_ids: Sequence[str]) -> Sequence[int]:
        return await self._do(lambda one: one.waiting(endpoint_ids))

    async def keep(self, endpoint_id: str, duration: timedelta | None) -> None:
        await self._do(lambda one: one.keep(endpoint_id, duration))

    async def _do(self, work: Callable[[MemoryWebhooks], Awaitable[T]]) -> T:
        return await self._change(lambda memory: work(memory.webhooks))
