"""The room that the last values of a shard take, and its bounds: who makes topics up must not fill the store.

Half of the room is divided equally among tenants, and each has its part for itself. The other half is for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from app.core.errors import QuotaError
from app.core.events.event import OWN, Database

Bound: TypeAlias = Literal["last_value", "last_value_bytes", "last_value_share", "last_value_bytes_share"]
"""The bound that leaves no room, as it is counted: that of the number of values, that of their bytes, or either of them
because the room is kept for others."""
_REASONS: Final[Mapping[Bound, str]] = {
    "last_value": "as many as HOMING_EVENTS_VALUES allows",
    "last_value_bytes": "as many bytes as HOMING_EVENTS_VALUES_BYTES allows",
    "last_value_share": "only as much room left of HOMING_EVENTS_VALUES as is kept for other tenants",
    "last_value_bytes_share": "only as much room left of HOMING_EVENTS_VALUES_BYTES as is kept for other tenants",
}


class Size(NamedTuple):
    """A last value: the key of its topic, the bytes of topic and record, and the tenant to whom it counts."""

    key: Hashable
    size: int
    tenant: str = ""


class ValueUsage:
    """By key of a topic, what it takes, and what each tenant takes of that."""

    def __init__(self, database: Database, sizes: Iterable[Size] = ()) -> None:
        self._database = database
        self._held: dict[Hashable, Size] = {}
        self._numbers: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0
        for one in sizes:
            self.put(one)

    def bound(self, topic: str, one: Size) -> Bound | None:
        """Return the bound that leaves no room for this value; None when there is room."""
        was = self._held.get(one.key)
        if was is None:
            number = self._number_bound(topic, one.tenant, len(self._held) + 1, self._numbers)
            if number is not None:
                return number
        grows = one.size - (0 if was is None else was.size)
        return self._bytes_bound(topic, one.tenant, self._all_bytes + grows, self._bytes) if grows > 0 else None

    def put(self, one: Size) -> None:
        """The topic has this value."""
        self.forget(one.key)
        self._held[one.key] = one
        self._numbers[one.tenant] += 1
        self._bytes[one.tenant] += one.size
        self._all_bytes += one.size

    def forget(self, key: Hashable) -> None:
        """It has none any more."""
        was = self._held.pop(key, None)
        if was is not None:
            self._numbers[was.tenant] -= 1
            self._bytes[was.tenant] -= was.size
            self._all_bytes -= was.size

    def check(self, given: Mapping[str, Size]) -> None:
        """QuotaError when not all of these topics may have values of their sizes."""
        numbers, sizes, count, size = self._numbers.copy(), self._bytes.copy(), len(self._held), self._all_bytes
        growing = []
        for topic, one in sorted(given.items(), key=lambda item: item[0].startswith(OWN)):
            was = self._held.get(one.key)
            more = one.size
            numbers[one.tenant] += 1
            sizes[one.tenant] += one.size
            if was is None:
                count += 1
                self._refuse(topic, self._number_bound(topic, one.tenant, count, numbers))
            else:
                more -= was.size
                numbers[was.tenant] -= 1
                sizes[was.tenant] -= was.size
            size += more
            if more > 0:
                growing.append((topic, one.tenant))
        for topic, tenant in growing:
            self._refuse(topic, self._bytes_bound(topic, tenant, size, sizes))

    def _refuse(self, topic: str, bound: Bound | None) -> None:
        if bound is not None:
            raise no_room(self._database.name, topic, bound)

    def _number_bound(self, topic: str, tenant: str, count: int, used: Mapping[str, int]) -> Bound | None:
        most = self._database.values_allowed(topic)
        if count > most:
            return "last_value"
        return "last_value_share" if count > most - self._kept(tenant, most, used) else None

    def _bytes_bound(self, topic: str, tenant: str, size: int, used: Mapping[str, int]) -> Bound | None:
        most = self._database.value_bytes_allowed(topic)
        if size > most:
            return "last_value_bytes"
        return "last_value_bytes_share" if size > most - self._kept(tenant, most, used) else None

    def _kept(self, tenant: str, most: int, used: Mapping[str, int]) -> int:
        """The room that others have not used yet of their own parts."""
        tenants = self._database.tenants.count()
        if not tenants:
            return 0
        part = most // (2 * tenants)
        taken = sum(min(part, theirs) for other, theirs in used.items() if other != tenant)
        return max(0, (tenants - 1) * part - taken)


def no_room(database: str, topic: str, bound: Bound) -> QuotaError:
    """The error where a topic must get a last value, and cannot."""
    return QuotaError(
        f"the topic {topic[:128]!a} can have no last value: its part of the database {database!a} has "
        f"{_REASONS[bound]}; delete some"
    )
