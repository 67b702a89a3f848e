"""What the last values of a shard take, and for which there is room: who makes topics up must not fill the store."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Literal, TypeAlias

from app.core.errors import QuotaError
from app.core.eventlog.event import OWN, Database

Bound: TypeAlias = Literal["last_value", "last_value_bytes"]
"""Which one leaves no room, as it is counted: that of their number, or of their bytes."""
_SETTINGS: Final[Mapping[Bound, str]] = {
    "last_value": "as many as HOMING_EVENTS_VALUES allows",
    "last_value_bytes": "as many bytes as HOMING_EVENTS_VALUES_BYTES allows",
}


class Held:
    """By key of a topic, what it takes: the topic and its record, in bytes."""

    def __init__(self, database: Database, sizes: Iterable[tuple[Hashable, int]] = ()) -> None:
        self._database = database
        self._sizes = dict(sizes)
        self._bytes = sum(self._sizes.values())

    def bound(self, topic: str, key: Hashable, size: int) -> Bound | None:
        """What leaves no room for this value; None when there is room."""
        grows = size - self._sizes.get(key, 0)
        if key not in self._sizes and len(self._sizes) >= self._database.values_allowed(topic):
            return "last_value"
        if grows > 0 and self._bytes + grows > self._database.value_bytes_allowed(topic):
            return "last_value_bytes"
        return None

    def put(self, key: Hashable, size: int) -> None:
        """The topic has a value of so many bytes."""
        self._bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def forget(self, key: Hashable) -> None:
        """It has none any more."""
        self._bytes -= self._sizes.pop(key, 0)

    def check(self, given: Mapping[str, tuple[Hashable, int]]) -> None:
        """QuotaError when not all of these topics may have values of their sizes."""
        new = [topic for topic, (key, _) in given.items() if key not in self._sizes]
        for count, topic in enumerate(sorted(new, key=lambda one: one.startswith(OWN)), start=len(self._sizes) + 1):
            if count > self._database.values_allowed(topic):
                raise no_room(self._database.name, topic, "last_value")
        grows = {topic: size - self._sizes.get(key, 0) for topic, (key, size) in given.items()}
        for topic, more in grows.items():
            if more > 0 and self._bytes + sum(grows.values()) > self._database.value_bytes_allowed(topic):
                raise no_room(self._database.name, topic, "last_value_bytes")


def no_room(database: str, topic: str, bound: Bound) -> QuotaError:
    """What is said where a topic must get a last value, and cannot."""
    return QuotaError(
        f"the topic {topic[:128]!a} can have no last value: its part of the database {database!a} has "
        f"{_SETTINGS[bound]}; delete some"
    )
