"""A message as a broker has it between its publisher and those who get it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from sys import getsizeof

from app.core.broker.codes import Property
from app.core.broker.properties import NO_PROPERTIES, Properties

_OF_ONE_HOP = (Property.TOPIC_ALIAS, Property.WILL_DELAY_INTERVAL)
"""The properties that are for the server alone: an alias is of one connection."""
_MOST_SECONDS = 2**32 - 1
"""The longest expiry that can be told."""
OVERHEAD = 256
"""Bytes that a message takes besides topic and payload, roughly."""


@dataclass(slots=True, kw_only=True)  # nobody changes one: to be frozen makes it take three times as long to make
class Message:
    """`expires_at` is in seconds of the monotonic clock; None is never. `publisher` is a client id.

    The expiry in `properties` is as it came: each receiver is told what is left of it.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    properties: Properties = NO_PROPERTIES
    expires_at: float | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly. One character beyond 16 bits makes four bytes of each one of a text."""
        texts = getsizeof(self.topic) + (self.properties.size if self.properties else 0)
        return texts + len(self.payload) + OVERHEAD

    def expired(self, now: float) -> bool:
        """True if nobody should get it any more."""
        return self.expires_at is not None and now >= self.expires_at

    def properties_for(self, identifiers: tuple[int, ...], now: float) -> Properties:
        """As a receiver with these subscription identifiers is given them [MQTT-3.3.2-6, 3.3.4-3]."""
        if self.expires_at is None and not identifiers:
            return self.properties
        values = dict(self.properties.values)
        if self.expires_at is not None:
            left = ceil(round(self.expires_at - now, 3))  # as sums of floats may be a little more than their parts
            values[Property.MESSAGE_EXPIRY_INTERVAL] = min(max(1, left), _MOST_SECONDS)
        return replace(self.properties, values=values, subscription_identifiers=identifiers)


def expiry_of(properties: Properties, now: float) -> float | None:
    """The instant at which a message with these properties, received now, expires."""
    if Property.MESSAGE_EXPIRY_INTERVAL not in properties.values:
        return None
    return now + properties.number(Property.MESSAGE_EXPIRY_INTERVAL)


def handed_on(properties: Properties) -> Properties:
    """Return what receivers get unaltered [MQTT-3.3.2-4, -15 to -20], and the expiry."""
    if properties.values.keys().isdisjoint(_OF_ONE_HOP):
        return properties
    return replace(properties, values={key: one for key, one in properties.values.items() if key not in _OF_ONE_HOP})
