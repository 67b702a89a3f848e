"""Takes what the broker delivers: message -> match -> record -> wake, and only then PUBACK."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from app.callbacks.journal import Journal
from app.callbacks.registry import Registry
from app.core.callback import Answer, Correlation
from app.core.clock import Clock
from app.core.errors import InvalidInputError, StoreRefusedError, StoreUnavailableError, UndecodableMessageError
from app.core.identifiers import validate_command_id, validate_device_id
from app.core.profile import ResponseReader
from app.core.routing import Annexed, DeliverLocally, Drop, Forwarded, Progressed, Recorded, Verdict, route
from app.measures import Measures
from app.mqtt.base import Delivery
from app.observability import BurstLog, Counters
from app.store.base import StateStore

MOST_REFUSED: Final = 64
"""Responses that the store refused and that stay with the broker: more would use up the Receive Maximum."""


class _Entry:
    """A delivery in the order of arrival; settled once the store has its say. `arrived_at`: on the monotonic clock."""

    __slots__ = ("arrived_at", "delivery", "settled")

    def __init__(self, delivery: Delivery, arrived_at: float) -> None:
        self.delivery = delivery
        self.arrived_at = arrived_at
        self.settled = False


class Dispatcher:
    """Settles deliveries side by side and acknowledges them in the order in which they came [MQTT-4.6.0-2].

    How many are under way is bounded by the client's Receive Maximum. While the store is away they stay unacknowledged,
    so that the broker keeps them.
    """

    def __init__(
        self,
        *,
        reader: ResponseReader,
        store: StateStore,
        registry: Registry,
        node_id: str,
        clock: Clock,
        counters: Counters,
        drops: BurstLog,
        measures: Measures | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._reader = reader
        self._store = store
        self._registry = registry
        self._node_id = node_id
        self._clock = clock
        self._counters = counters
        self._drops = drops
        self._measures = measures or Measures()
        self._journal = journal
        self._arrived: deque[_Entry] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._refused = 0

    def handle(self, delivery: Delivery) -> None:
        """Begin to settle a delivery. Called on the event loop for each one; returns at once."""
        entry = _Entry(delivery, self._clock.monotonic())
        self._arrived.append(entry)
        answer = self._read(delivery)
        if answer is None:
            self._settled(entry)
            return
        if self._journal is not None:
            self._journal.received(answer, len(delivery.message.payload), entry.arrived_at)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._settle(entry, answer))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def drained(self) -> None:
        """Return when every delivery so far is settled."""
        while self._settling:
            await asyncio.wait(tuple(self._settling))

    def _read(self, delivery: Delivery) -> Answer | None:
        message = delivery.message
        if message.retain:
            # A retained message answers nothing that was asked now (F63; Mosquitto before 2.0.13 replays them).
            self._drops.drop("retained", topic=message.topic)
            return None
        if message.qos == 0:
            self._counters["response.qos0"] += 1
        try:
            answer = self._reader.read(message)
            validate_device_id(answer.device_id)
            if answer.correlation is Correlation.ID:
                validate_command_id(answer.value)
        except UndecodableMessageError as error:
            self._drops.drop(error.reason, topic=message.topic)
            return None
        except InvalidInputError:
            self._drops.drop("foreign_id")
            return None
        return answer

    async def _settle(self, entry: _Entry, answer: Answer) -> None:
        try:
            recorded = await self._store.respond(answer, self._node_id)
        except StoreRefusedError:
            self._refused += 1
            if self._refused > MOST_REFUSED:
                self._drops.drop("store_refused", device_id=answer.device_id)
                self._settled(entry)
            else:
                self._leave(entry)
            return
        except StoreUnavailableError:
            self._leave(entry)
            return
        now = self._clock.monotonic()
        self._measures.recorded(now - entry.arrived_at)
        self._act(recorded, answer, now - entry.arrived_at)
        if self._journal is not None:
            self._journal.recorded(recorded, answer, entry.arrived_at, now)
        self._settled(entry)

    def _act(self, recorded: Recorded, answer: Answer, seconds: float) -> None:
        match route(recorded, self._node_id):
            case DeliverLocally(outcome):
                self._registry.complete(outcome, seconds if recorded.verdict is Verdict.WON else None)
                if recorded.verdict is Verdict.WON:
                    self._counters["response.local"] += 1
                else:
                    self._drops.drop(recorded.verdict.value, device_id=answer.device_id, command_id=outcome.command_id)
            case Forwarded():
                self._counters["response.forwarded"] += 1
            case Annexed():
                self._counters["response.late"] += 1
            case Progressed(command_id):
                self._registry.progressed(command_id)
                self._counters["response.progress"] += 1
            case Drop(reason):
                self._drops.drop(reason, device_id=answer.device_id, command_id=recorded.command_id)

    def _leave(self, entry: _Entry) -> None:
        """What is not on record gets no PUBACK, so the next connection gets it again; it holds up none behind it."""
        self._counters["response.not_recorded"] += 1
        self._arrived.remove(entry)
        self._acknowledge_settled()

    def _settled(self, entry: _Entry) -> None:
        entry.settled = True
        self._acknowledge_settled()

    def _acknowledge_settled(self) -> None:
        while self._arrived and self._arrived[0].settled:
            self._arrived.popleft().delivery.acknowledge()
