"""Publishes messages to exchanges: one, or several that come over a channel and are confirmed one by one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from app.core.errors import HomingError, UnroutedError
from app.core.events.batches import CallId
from app.core.events.event import Entry, Position, validate_entry
from app.core.queues.dated import NotBefore, dated
from app.core.queues.exchanges import DeclaredExchange
from app.events.publisher import EventPublisher
from app.queues.book import QueueBook


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """A message with a key, for an exchange. Repeated as the same `call` it is there once."""

    exchange: DeclaredExchange
    key: str
    entry: Entry
    call: CallId | None
    mandatory: bool
    not_before: NotBefore | None = None


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """The place of a message in the log, where it is durable, and the queues that get it."""

    position: Position
    routed: Sequence[str]


class ExchangePublisher:
    """Calls raise UnroutedError, InvalidInputError, and what `EventPublisher.publish` raises.

    `now` asks the clock of the log.
    """

    def __init__(self, book: QueueBook, publisher: EventPublisher, now: Callable[[], Awaitable[Position]]) -> None:
        self._book = book
        self._publisher = publisher
        self._now = now

    async def publish(self, message: KeyedMessage) -> MessageReceipt:
        """Append a message."""
        entry = await self._checked(message)
        (position,) = await self._publisher.publish(message.exchange.database, [entry], message.call)
        return self._receipt(message, position)

    async def publish_all(self, messages: Sequence[KeyedMessage]) -> list[MessageReceipt | HomingError]:
        """Append messages, and return what became of each. Those of one device or key are appended in their order."""
        lines: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, one in enumerate(messages):
            lines[one.exchange.database, one.entry.device or one.entry.topic].append(number)
        ended = await asyncio.gather(*(self._in_order([messages[one] for one in line]) for line in lines.values()))
        outcomes = dict(zip(chain(*lines.values()), chain(*ended), strict=True))
        return [outcomes[number] for number in range(len(messages))]

    async def _in_order(self, messages: Sequence[KeyedMessage]) -> list[MessageReceipt | HomingError]:
        ended: list[MessageReceipt | HomingError] = []
        for is_call, part in groupby(messages, key=lambda one: one.call is not None):
            if is_call:
                ended += [await self._outcome(one) for one in part]
            else:
                ended += await self._together(list(part))
        return ended

    async def _outcome(self, message: KeyedMessage) -> MessageReceipt | HomingError:
        try:
            return await self.publish(message)
        except HomingError as error:
            return error

    async def _together(self, messages: Sequence[KeyedMessage]) -> list[MessageReceipt | HomingError]:
        """Append messages of one device or key, which are of one shard: all of them or none, but for those refused."""
        refused: dict[int, HomingError] = {}
        entries: list[Entry] = []
        for number, one in enumerate(messages):
            try:
                entries.append(await self._checked(one))
            except HomingError as error:
                refused[number] = error
        try:
            positions = iter(await self._publisher.publish(messages[0].exchange.database, entries) if entries else ())
        except HomingError as error:
            return [refused.get(number, error) for number in range(len(messages))]
        return [refused.get(number) or self._receipt(one, next(positions)) for number, one in enumerate(messages)]

    async def _checked(self, message: KeyedMessage) -> Entry:
        """Return the entry to append; UnroutedError, InvalidInputError."""
        validate_entry(message.entry)
        exchange, key = message.exchange, message.key
        if message.mandatory and not self._book.routed(exchange, key):
            await self._book.refresh()  # somebody may have declared one a moment ago, on another node
            if not self._book.routed(exchange, key):
                raise UnroutedError(f"no queue has a route from exchange {exchange.name!a} for the key {key!a}")
        if message.not_before is None:
            return message.entry
        return dated(message.entry, message.not_before.at(await self._now()))

    def _receipt(self, message: KeyedMessage, position: Position) -> MessageReceipt:
        return MessageReceipt(position, self._book.routed(message.exchange, message.key))
