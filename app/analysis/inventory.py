"""The inventory of a compacted day: the files of the log that it had, and where the records of each went.

A day may gain files, and loses none by running. When retention has taken files away, their clean records are the only
copy: those stay, and what the log has beyond them is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

WHOLE_FILES: Final = ("not_parquet", "unreadable")
"""Reasons for which nothing of a file was taken: it is tried again, as it may have been half copied."""


class FileStamp(NamedTuple):
    """A file as it lies in the log: bytes, and microseconds since 1970. Another size or time is another file."""

    size: int
    time_us: int


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A file that was in a day. `part` begins the names of the files of clean records that its own are in.

    `reason` says why nothing was taken of it, `records` how many it promised then.
    """

    path: str
    size: int
    time_us: int
    part: str
    reason: str | None = None
    records: int = 0


SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("records", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The files to read for a day, and the entries of it that stay; `why_not` says why all of it stays as it was."""

    read: Sequence[str]
    kept: Sequence[InventoryEntry] = ()
    why_not: str = ""

    @property
    def parts(self) -> set[str]:
        """The parts of the clean records that stay."""
        return {one.part for one in self.kept}


def plan(now: Mapping[str, FileStamp], before: Sequence[InventoryEntry]) -> DayPlan:
    """A day of which no file is gone is made anew from all of them, else it keeps what it has."""
    taken = {one.path: one for one in before if one.reason is None}
    gone = taken.keys() - now.keys()
    if not gone:
        return DayPlan(sorted(now))
    left = f"{len(gone):,} of its {len(taken):,} files are gone"
    # A copy may have another time. Its records cannot be told from those of the files that are gone.
    if changed := [path for path in taken if path in now and now[path].size != taken[path].size]:
        return DayPlan((), before, f"{left}, and {len(changed):,} are not what they were, such as {changed[0]}")
    tried = {one.path: FileStamp(one.size, one.time_us) for one in before}
    more = sorted(path for path in now if path not in taken)
    if all(now[path] == tried.get(path) for path in more):
        return DayPlan((), before, left)
    return DayPlan(more, [one for one in before if one.path not in more])


def plan_without(now: Mapping[str, FileStamp], files: int) -> DayPlan:
    """The plan of a day that version 0.2.0 made, which noted how many files there were."""
    why_not = f"it had {files:,} files, and {len(now):,} are left" if len(now) < files else ""
    return DayPlan((), (), why_not) if why_not else DayPlan(sorted(now))
