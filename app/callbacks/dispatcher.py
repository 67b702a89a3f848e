"""Reads what the broker delivers, and gives each message to the part that knows what to do with its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.callbacks.observer import Observers
from app.core.errors import UndecodableMessageError
from app.core.profiles.response_reader import ResponseReader
from app.mqtt.inbox import Arrival

Taker = Callable[[Arrival, Any], None]
"""Takes what was read, and settles the arrival in which it came."""


class Dispatcher:
    """`takers` has one for each type that the reader of profiles returns."""

    def __init__(
        self,
        *,
        reader: ResponseReader,
        takers: Mapping[type, Taker],
        observers: Observers,
        own: Mapping[str, Callable[[bytes], None]] | None = None,
        replies_to: Callable[[Arrival], bool] | None = None,
    ) -> None:
        """`own` are the topics on which nodes speak to nodes, each with who takes the payload.

        `replies_to` sees to it that a message gets its reply when it is settled, and says whether it will.
        """
        self._reader = reader
        self._takers = takers
        self._observers = observers
        self._own = {} if own is None else own
        self._replies_to = replies_to

    def take(self, arrival: Arrival) -> None:
        """Find out what came, and hand it on. Returns at once."""
        message = arrival.message
        own = self._own.get(message.topic)
        if own is not None:
            own(message.payload)
            arrival.settle()
            return
        if message.retain:
            # A retained message answers nothing that was asked now. (Mosquitto before 2.0.13 replays them.)
            self._drop(arrival, "retained")
            return
        if message.qos == 0:
            for tell in self._observers.unpromised:
                tell(message.topic)
        replied = self._replies_to is not None and self._replies_to(arrival)
        try:
            reading = self._reader.read(message)
        except UndecodableMessageError as error:
            if replied:
                arrival.settle()
            else:
                self._drop(arrival, error.reason, error.profile)
        else:
            for tell_heard in self._observers.heard:
                tell_heard(reading.device_id, reading.profile, message.topic)
            self._takers[type(reading)](arrival, reading)

    def _drop(self, arrival: Arrival, reason: str, profile: str = "") -> None:
        for tell in self._observers.dropped:
            tell(reason, topic=arrival.message.topic, profile=profile or None)
        arrival.settle()
