"""Soft bounds of what databases take together: of all of them, and of groups that must not crowd out the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from app.core.errors import QuotaError
from app.core.events.event import Entry

Discard: TypeAlias = Literal["new", "old"]
LEAST_BYTES: Final = 10_000_000
MOST_BYTES: Final = 2**50
MOST_GROUPS: Final = 16


@dataclass(frozen=True, slots=True)
class Quota:
    """The bytes that these databases may take, and what goes then: `new` events are refused, or `old` ones dropped."""

    databases: frozenset[str]
    most: int
    discard: Discard
    about: str
    """The thing that the quota bounds, for people."""
    setting: str
    """The setting that gives the quota."""

    def taken(self, sizes: Mapping[str, int]) -> int:
        """The bytes that its databases take, of the sizes of all."""
        return sum(size for name, size in sizes.items() if name in self.databases)

    def refusal(self, taken: int) -> QuotaError:
        """The error for whoever writes."""
        return QuotaError(
            f"the events{self.about} take {taken} bytes, and {self.setting} allows {self.most}; reading goes on"
        )


def is_bounded(entries: Iterable[Entry]) -> bool:
    """True if quotas bound a call: not where it only deletes last values."""
    return any(one.value for one in entries)


def check_room(database: str, room: int | None, entries: Iterable[Entry]) -> None:
    """QuotaError where nothing is left for what is to be appended. The last call may take more than that."""
    if room is not None and room <= 0 and is_bounded(entries):
        raise no_room(database)


def no_room(database: str) -> QuotaError:
    """The error for whoever writes, where the log itself has counted."""
    return QuotaError(f"the events of the database {database!a} take as many bytes as quotas allow; reading goes on")


def of_all(databases: Collection[str], most: int, discard: Discard) -> Quota:
    """The bound of all databases together."""
    return Quota(frozenset(databases), most, discard, "", "HOMING_EVENTS_QUOTA_BYTES")


def parse_quotas(text: str, databases: Collection[str]) -> tuple[Quota, ...]:
    """`telemetry=500000000:old, events+alarms=1000000000`; ValueError names what is wrong and what is allowed."""
    found: list[Quota] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        names, equals, rest = (one.strip() for one in part.partition("="))
        size, colon, discard = (one.strip() for one in rest.partition(":"))
        group = [one.strip() for one in names.split("+")]
        shown = f"{part[:64]!a}"
        if not equals or not size.isascii() or not size.isdigit():
            raise ValueError(
                f"{shown} has no number of bytes; allowed: databases=bytes, such as events+alarms=500000000"
            )
        unknown = sorted(set(group) - set(databases))
        if unknown or len(set(group)) < len(group):
            wrong = f"{unknown[0][:32]!a}, which is no database" if unknown else "a database twice"
            raise ValueError(f"{shown} names {wrong}; allowed, each once: {', '.join(databases)}")
        if not LEAST_BYTES <= int(size) <= MOST_BYTES:
            raise ValueError(f"{shown}: allowed are {LEAST_BYTES} to {MOST_BYTES} bytes")
        chosen: Discard = "old" if discard == "old" else "new"
        if colon and discard not in get_args(Discard):
            raise ValueError(f"{shown} ends with {discard[:16]!a}; allowed: new, old")
        found.append(Quota(frozenset(group), int(size), chosen, f" of {' and '.join(group)}", "HOMING_EVENTS_QUOTAS"))
    if len(found) > MOST_GROUPS:
        raise ValueError(f"names {len(found)} groups; allowed are up to {MOST_GROUPS}")
    return tuple(found)
