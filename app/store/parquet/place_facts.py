"""Checks for `homing doctor` that the place of the cold tier takes and gives back files. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from app.core.clock import Clock
from app.core.errors import HomingError, StoreUnavailableError
from app.core.events.cold import hour_named
from app.core.events.event import Position
from app.core.events.generation import HOUR_US
from app.store.archive import ArchiveFacts
from app.store.parquet.place import ObjectStore

PROBE_SECONDS: Final = 10.0
FOLDER: Final = "_homing-doctor"
"""The folder of the probes: readers of tables leave out names that begin with `_`."""
PROBE: Final = b"homing doctor was here"


def inspect_place(
    url: str,
    databases: Sequence[str],
    clock: Clock,
    new_secret: Callable[[], str],
    seconds: float = PROBE_SECONDS,
) -> ArchiveFacts:
    """Write a file of a few bytes, read it, delete it, and look at the folders. ConfigurationError."""
    place, found = ObjectStore(url, clock, new_secret), SimpleQueue[ArchiveFacts | HomingError]()

    def look() -> None:
        try:
            _probe(place, f"{FOLDER}/{new_secret()[:16]}")
            found.put(ArchiveFacts(oldest={one: at for one in databases if (at := _oldest(place, one)) is not None}))
        except HomingError as error:
            found.put(error)

    # A daemon: libraries of object stores try for minutes, and nobody waits for them.
    Thread(target=look, name="probe of the cold tier", daemon=True).start()
    try:
        facts = found.get(timeout=seconds)
    except Empty:
        return ArchiveFacts(f"the place of the cold tier does not answer within {seconds:g} s")
    return ArchiveFacts(str(facts)) if isinstance(facts, HomingError) else facts


def _probe(place: ObjectStore, folder: str) -> None:
    path = f"{folder}/0/probe"
    place.put(path, memoryview(PROBE))
    try:
        source = place.open(path)
        try:
            read = source.read()
        finally:
            source.close()
    except FileNotFoundError:
        read = b""
    place.remove(path)
    for one in (f"{folder}/0", folder, FOLDER):
        place.tidy(one)
    if read != PROBE:
        raise StoreUnavailableError(f"the cold tier of events gives {len(read)} other bytes than were written")


def _oldest(place: ObjectStore, database: str) -> Position | None:
    """The position of the oldest hour. Reads the first day only: names sort as time does."""
    for date in place.folders(f"db={database}"):
        for name in place.folders(f"db={database}/{date}"):
            hour = hour_named(date, name)
            if hour is not None:
                return hour * HOUR_US
    return None
