"""Replies to devices that ask, or that want to know that they were heard: by the node that has the message, and once.

A reply leaves when its message is settled: what is left to the broker comes again, and gets its reply then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.callbacks.floods import Floods
from app.callbacks.observer import Observers
from app.core.clock import Clock
from app.core.errors import (
    HandlerFailedError,
    HomingError,
    InvalidInputError,
    UnavailableError,
    UndecodableMessageError,
)
from app.core.identifiers import validate_device_id
from app.core.messages import Publication
from app.core.profiles.event_reader import ReplyReader
from app.core.replies.reply import Candidate
from app.mqtt.base import MqttClient, Puback
from app.mqtt.inbox import Arrival
from app.replies.finder import Finder, FoundReply, Handlers, LastEntry, NoHandlers, no_events
from app.runtime.telemetry import Counters, Fill
from app.store.commands import CommandReader

MOST_A_SECOND: Final = 50
"""The replies that a device gets within a second; more would be a loop, or a fault of the device."""
MOST_LOOKED_UP: Final = 256
"""Messages whose reply waits for the store at a time."""


class Replier:
    """Counts what it sends (`reply.sent`), and drops by reason what it does not."""

    def __init__(
        self,
        *,
        reader: ReplyReader,
        mqtt: MqttClient,
        store: CommandReader,
        clock: Clock,
        counters: Counters,
        observers: Observers,
        last_entry: LastEntry = no_events,
        handlers: Handlers | None = None,
    ) -> None:
        self._reader = reader
        self._mqtt = mqtt
        self._handlers = handlers or NoHandlers()
        self._finder = Finder(store, last_entry, self._handlers)
        self._clock = clock
        self._counters = counters
        self._observers = observers
        self._floods = Floods(clock, MOST_A_SECOND)
        self._looking: set[asyncio.Task[None]] = set()

    def replies_to(self, arrival: Arrival) -> bool:
        """True if the message gets a reply; the reply follows when the arrival is settled."""
        message = arrival.message
        if not self._reader.may_concern(message.topic):
            return False
        candidates = self._reader.read(message, int(self._clock.wall() * 1000))
        if not candidates:
            return False
        arrival.after = partial(self._reply, candidates)
        return True

    def fills(self) -> dict[str, Fill]:
        """The number of replies that wait for stores, and its bound."""
        return {"replies": Fill(self._waiting, MOST_LOOKED_UP)}

    @property
    def _waiting(self) -> int:
        """The number of replies that wait for stores: those that wait for a slow handler have a bound of their own."""
        return len(self._looking) - self._handlers.in_flight

    async def drained(self) -> None:
        """Return when every reply so far has left, or was given up."""
        while self._looking:
            await asyncio.wait(tuple(self._looking))

    def _reply(self, candidates: Sequence[Candidate]) -> None:
        device_id = candidates[0].device_id
        try:
            validate_device_id(device_id)
        except InvalidInputError:
            self._drop("reply_foreign_device")
            return
        for tell in self._observers.heard:  # a device that asks is there
            tell(device_id, candidates[0].profile, candidates[0].asked_on)
        if self._floods.holds_back(device_id):
            self._drop("reply_flood", device_id)
            return
        self._floods.count(device_id)
        if not any(one.spec.looks_up for one in candidates):
            self._send_first(candidates, device_id)
        elif self._waiting >= MOST_LOOKED_UP:
            self._drop("reply_overload", device_id)
        else:
            task = asyncio.get_running_loop().create_task(self._look_up(candidates, device_id))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look_up(self, candidates: Sequence[Candidate], device_id: str) -> None:
        try:
            found = await self._finder.first(candidates, device_id)
        except HandlerFailedError as error:
            self._drop(error.reason, device_id)
        except InvalidInputError:
            self._drop("reply_unmade", device_id)
        except (HomingError, UndecodableMessageError):
            self._drop("reply_unsent", device_id)  # a device that gets no reply asks again
        else:
            self._leave(found, device_id)

    def _send_first(self, candidates: Sequence[Candidate], device_id: str) -> None:
        try:
            replies = (one.reply(None) for one in candidates)
            publication = next((one for one in replies if one is not None), None)
        except InvalidInputError:
            self._drop("reply_unmade", device_id)
        else:
            self._leave(FoundReply(publication, "reply_lacks_values"), device_id)

    def _leave(self, found: FoundReply, device_id: str) -> None:
        if found.reply is None:
            self._drop(found.lacking, device_id)
        elif self._reader.hears(found.reply.topic):
            self._drop("reply_to_ourselves", device_id)
        else:
            self._send(found.reply, device_id)

    def _send(self, publication: Publication, device_id: str) -> None:
        try:
            puback = self._mqtt.publish(publication)
        except (UnavailableError, InvalidInputError):
            self._drop("reply_unsent", device_id)
            return
        self._counters["reply.sent"] += 1
        puback.add_done_callback(self._after_puback)

    def _after_puback(self, puback: Puback) -> None:
        if not puback.cancelled() and puback.exception() is not None:
            self._drop("reply_unconfirmed")

    def _drop(self, reason: str, device_id: str | None = None) -> None:
        for tell in self._observers.dropped:
            tell(reason, device_id=device_id)
