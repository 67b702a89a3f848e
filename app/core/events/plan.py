"""The plan of the databases of events: which there are, how long each keeps what it has, and which topics lie where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Final

from app.core.durations import parse_duration
from app.core.errors import InvalidInputError
from app.core.events.event import MOST_VALUE_BYTES, MOST_VALUES, Database, Shard, TenantShares, validate_database
from app.core.events.presence import topic_of
from app.core.identifiers import id_of_name, name_of
from app.core.profiles.profile import DeviceProfile
from app.core.topics import TopicTemplate
from app.core.topictree import LONG_TOPIC, MOST_TOPICS, TopicTree

LEAST_RETENTION: Final = timedelta(minutes=1)
MOST_DATABASES: Final = 16


@dataclass(frozen=True, slots=True)
class NamedDatabase:
    """A database, as settings name it."""

    name: str
    retention: timedelta

    @property
    def retention_us(self) -> int:
        """The time for which events stay, in microseconds."""
        return self.retention // timedelta(microseconds=1)


def parse_databases(text: str) -> tuple[NamedDatabase, ...]:
    """`events=720h,telemetry=24h`; ValueError names what is wrong and what is allowed."""
    kept: dict[str, NamedDatabase] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, retention = (one.strip() for one in part.partition("="))
        if not equals:
            raise ValueError(f"{part[:64]!a} has no retention; allowed: name=duration, such as events=720h")
        try:
            validate_database(name)
        except InvalidInputError as error:
            raise ValueError(error.reason) from None
        if name in kept:
            raise ValueError(f"{name!a} is given twice; allowed: once")
        kept[name] = NamedDatabase(name, parse_duration(retention))
        if kept[name].retention < LEAST_RETENTION:
            raise ValueError(f"{part[:64]!a} is too short; allowed: a retention of at least 1m")
    if not 1 <= len(kept) <= MOST_DATABASES:
        raise ValueError(f"names {len(kept)} databases; allowed are 1 to {MOST_DATABASES}")
    return tuple(kept.values())


_UNKNOWN: Final = "\0"
"""Stands for what a filter leaves open; no topic has it."""


def _fitting(template: TopicTemplate, wanted: Sequence[str]) -> list[str] | None:
    """The levels of a topic that has both the template and the filter, as far as that is known; None: there is none."""
    if template.before_several is not None:
        known = zip(template.levels[: template.before_several], wanted, strict=False)
        apart = any(literal is not None and level not in ("+", "#", literal) for literal, level in known)
        return None if apart else [_UNKNOWN]  # how many levels it takes is open
    open_end = wanted[-1] == "#"
    given = [*wanted[:-1], *["+"] * (len(template.levels) - len(wanted) + 1)] if open_end else list(wanted)
    if len(given) != len(template.levels):
        return None
    levels = []
    for literal, level in zip(template.levels, given, strict=True):
        if literal is not None and level not in ("+", literal):
            return None
        levels.append(literal or (_UNKNOWN if level == "+" else level))
    return levels


class Plan:
    """The databases of a node. Where a profile proposes one that is not there, or none, the first one is taken."""

    def __init__(
        self,
        kept: Sequence[NamedDatabase],
        profiles: Iterable[DeviceProfile],
        shards: int,
        values: int = MOST_VALUES,
        value_bytes: int = MOST_VALUE_BYTES,
        tenants: TenantShares | None = None,
    ) -> None:
        """`values`: how many topics of a database may have a last value, and how much these may take, for `tenants`."""
        self.kept: Final = tuple(kept)
        self._names: Final = frozenset(one.name for one in kept)
        self._topics: Final = TopicTree[TopicTemplate]()
        self._of_devices: Final[list[tuple[str, TopicTemplate]]] = []
        self._homes: Final = TopicTree[tuple[str, TopicTemplate]]()
        self._templates: Final = [TopicTemplate(topic_of("{device_id}"))]
        taught: dict[str, list[str]] = {one.name: [] for one in kept}
        for profile in profiles:
            for spec in profile.events:
                self._templates.append(spec.topic)
                self._homes.enter(spec.topic, (self.name(spec.database), spec.topic))
                if "device_id" in spec.topic.names:
                    self._topics.enter(spec.topic, spec.topic)
                if spec.topic.names == ("device_id",):
                    self._of_devices.append((self.name(spec.database), spec.topic))
                if spec.topic.before_several is None:
                    taught[self.name(spec.database)].append(spec.topic.filter())
        self.databases: Final = tuple(
            Database(
                one.name, shards, tuple(dict.fromkeys(taught[one.name])), values, value_bytes, tenants or TenantShares()
            )
            for one in kept
        )
        self._known: Final = lru_cache(MOST_TOPICS)(self._named_by)
        self._by_name: Final = {one.name: one for one in self.databases}

    def name(self, proposed: str | None) -> str:
        """The database for events for which a profile proposes this one."""
        return proposed if proposed in self._names else self.kept[0].name

    def database(self, name: str) -> Database | None:
        """The one of this name."""
        return self._by_name.get(name)

    def shard(self, database: str, topic: str) -> Shard:
        """The shard of all events of a topic: with all others of its device, where the topic names one."""
        return self._by_name[database].shard(self.device_of(topic) or topic)

    def topics_of(self, device_id: str) -> list[tuple[str, str]]:
        """Topics on which a device speaks, each with its database; without those that vary further."""
        found = []
        for database, one in self._of_devices:
            with suppress(InvalidInputError):  # no device of that profile is called so, as with a slash in the name
                found.append((database, one.render(device_id=name_of(device_id))))
        return found

    def filters_of_devices(self) -> list[tuple[str, str]]:
        """Topic filters that mean all `topics_of` devices, each with its database."""
        return list(dict.fromkeys((database, one.filter()) for database, one in self._of_devices))

    def home(self, topic: str) -> str:
        """The database to which a profile sends what is said on a topic; the first one where none does."""
        levels = topic.split("/")
        for database, template in self._homes.find(levels):
            if template.match(levels) is not None:
                return database
        return self.kept[0].name

    def devices_of(self, topic_filter: str) -> frozenset[str] | None:
        """The devices of which all topics are that fit a filter; None where that cannot be told."""
        levels = topic_filter.split("/")
        found = set()
        for template in self._templates:
            fitting = _fitting(template, levels)
            if fitting is None:
                continue
            values = template.match(fitting)
            if values is None or _UNKNOWN in values.get("device_id", _UNKNOWN):
                return None
            found.add(id_of_name(values["device_id"]))
        return frozenset(found) or None

    def device_of(self, topic: str) -> str:
        """The device that the topic names, as profiles say; empty where none does."""
        return self._known(topic) if len(topic) <= LONG_TOPIC else self._named_by(topic)

    def _named_by(self, topic: str) -> str:
        levels = topic.split("/")
        for template in self._topics.find(levels):
            values = template.match(levels)
            if values is not None:
                return id_of_name(values["device_id"])
        return ""
