"""Moves what happened from the outbox into the queues of the endpoints that want to be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import structlog

from app.core.commands.command import Command
from app.core.errors import CommandNotFoundError, UnavailableError, UnreadableRecordError
from app.core.webhooks.deliveries import Delivery, OutboxEntry, Tidings
from app.core.webhooks.endpoints import Endpoint, EventType
from app.core.webhooks.schedule import KEPT
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.webhooks import WebhookStore
from app.webhooks import events
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook
from app.webhooks.events import Render

ROUND: Final = 100
"""The number of entries of a partition's outbox that are moved at once."""


class Collector:
    """`render` shows a command as the API does; `now` is in µs."""

    def __init__(
        self,
        *,
        store: WebhookStore,
        commands: CommandReader,
        book: EndpointBook,
        render: Render,
        now: Callable[[], int],
        counters: Counters,
        waiting: DeliveryBacklog,
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._commands = commands
        self._book = book
        self._render = render
        self._now = now
        self._counters = counters
        self._log = structlog.get_logger()

    async def collect(self, partitions: Sequence[int]) -> bool:
        """Move what is there, of each partition so much at once; whether there may be more.

        What is queued when this node dies is queued again, and known for what it is.
        """
        notices = await self._store.outbox(partitions, ROUND)
        if not notices:
            return False
        known = await self._commands.get([one.command_id for one in notices])
        away = set[str]()
        moved = [one for one, command in zip(notices, known, strict=True) if await self._tell(one, command, away)]
        await self._store.forget(moved)
        return ROUND <= len(notices) == len(moved)

    async def disable(self, endpoint: Endpoint, reason: str) -> None:
        """Serve it no more, keep what waits for a day, and tell the others of its tenant."""
        now = self._now()
        disabled = endpoint.disabled(now, reason)
        if not await self._store.put_endpoint(disabled, endpoint):
            return  # somebody has changed it meanwhile
        await self._store.keep(endpoint.id, timedelta(microseconds=KEPT))
        self._counters["webhooks.disabled"] += 1
        self._log.warning("webhook_disabled", webhook_id=endpoint.id, reason=reason)
        await self._book.refresh()
        for other in self._book.all:
            if other.tenant == endpoint.tenant and other.enabled and EventType.DISABLED in other.events:
                await self._enqueue(other, events.of_disabled(disabled, now))

    async def _tell(self, notice: OutboxEntry, command: Command | None, away: set[str]) -> bool:
        """Queue the event for all that want it; False when another version has to do it, or it has to be done later.

        `away` are endpoints whose queues cannot be reached now.
        """
        if command is None:
            try:
                command = await self._commands.read(notice.command_id)
            except CommandNotFoundError:
                self._counters["webhooks.lost"] += 1
                return True
            except UnreadableRecordError:
                return False
        if notice.tidings is Tidings.ASKED and not command.awaits_approval:
            return True  # somebody has decided, or it has ended: there is nothing to ask any more
        delivery = events.of_command(notice, command, self._render, self._now())
        for endpoint_id in command.notify:
            endpoint = self._book.get(endpoint_id)
            if endpoint is None or not endpoint.enabled or endpoint_id in away or delivery.type not in endpoint.events:
                continue
            try:
                if self._book.hears_of(endpoint, command.device_id):
                    await self._enqueue(endpoint, delivery)
            except UnavailableError:
                away.add(endpoint_id)
        return away.isdisjoint(command.notify)

    async def _enqueue(self, endpoint: Endpoint, delivery: Delivery) -> None:
        if not self._waiting.has_room(endpoint.tenant):
            self._drop("tenant", endpoint, delivery)
        elif await self._store.enqueue(endpoint.id, delivery):
            self._waiting.add(endpoint.tenant)
        else:
            self._drop("endpoint", endpoint, delivery)

    def _drop(self, whose: str, endpoint: Endpoint, delivery: Delivery) -> None:
        self._counters[f"webhooks.dropped_{whose}_full"] += 1
        self._log.warning("webhook_queue_full", webhook_id=endpoint.id, event_id=delivery.event_id, full=whose)
