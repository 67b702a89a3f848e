"""Commits the cursors of readers, who go on there when they begin again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from app.core.clock import Clock, wall_us
from app.core.errors import CursorNotFoundError, PreconditionFailedError
from app.core.events.named_cursors import (
    NamedCursor,
    decode_cursor,
    encode_cursor,
    validate_cursor_name,
    validate_size,
)
from app.events.gate import LogGate, call_budget
from app.events.reader import EventsReader
from app.runtime.telemetry import Counters
from app.store.events import EventStore

ATTEMPTS: Final = 8
"""The number of times that a commit is decided anew, as another one was faster."""

Check = Callable[[NamedCursor | None], None]
"""Raises what keeps the cursor that is there from being replaced."""


class NamedCursors:
    """Cursors by owner and name. Calls raise StoreUnavailableError, also while the log is not open."""

    def __init__(
        self, store: EventStore, reader: EventsReader, gate: LogGate, clock: Clock, counters: Counters
    ) -> None:
        self._store = store
        self._reader = reader
        self._gate = gate
        self._clock = clock
        self._counters = counters

    async def all(self, owner: str) -> Sequence[NamedCursor]:
        """Return the cursors of an owner, sorted by name."""
        self._gate.check()
        async with call_budget():
            found = await self._store.cursors.read(owner)
        known = (decode_cursor(name, document) for name, document in sorted(found.items()))
        return [one for one in known if one is not None]

    async def get(self, owner: str, name: str) -> NamedCursor:
        """The cursor; CursorNotFoundError."""
        found, _ = await self._read(owner, validate_cursor_name(name))
        if found is None:
            raise CursorNotFoundError(f"there is no cursor {name!a}")
        return found

    async def commit(
        self, owner: str, name: str, topic: str, text: str, check: Check, *, hides: bool = False
    ) -> NamedCursor:
        """The cursor as it stands then: behind what a reader of this topic filter has handled.

        When it stands there already, nothing happens, whatever `check` would say: a commit may be repeated. With
        `hides`, it is committed anew then: whether a reader has come further may say that others have said something,
        which is not for them to know. InvalidInputError where it is no cursor of this filter; CapacityError;
        PreconditionFailedError.
        """
        validate_cursor_name(name)
        scope, place = self._reader.start(self._reader.scope(None, topic), text, None)
        wanted = self._reader.text(place, scope)
        for _ in range(ATTEMPTS):
            there, document = await self._read(owner, name)
            is_there = there is not None and there.is_at(topic, wanted)
            if there is not None and is_there and not hides:
                return there
            if not is_there:
                self._check(check, there)
            new = validate_size(NamedCursor(name, topic, wanted, wall_us(self._clock)))
            if await self._swap(owner, name, document, encode_cursor(new)):
                self._counters["events.cursor_commits"] += 1
                return new
        raise PreconditionFailedError(f"others commit cursor {name} all the time; try again")

    async def forget(self, owner: str, name: str, check: Check) -> None:
        """Delete it, if it is there. PreconditionFailedError."""
        validate_cursor_name(name)
        for _ in range(ATTEMPTS):
            there, document = await self._read(owner, name)
            check(there)
            if document is None or await self._swap(owner, name, document, None):
                return
        raise PreconditionFailedError(f"others commit cursor {name} all the time; try again")

    def _check(self, check: Check, there: NamedCursor | None) -> None:
        try:
            check(there)
        except PreconditionFailedError:
            self._counters["events.cursor_conflicts"] += 1
            raise

    async def _read(self, owner: str, name: str) -> tuple[NamedCursor | None, bytes | None]:
        self._gate.check()
        async with call_budget():
            document = (await self._store.cursors.read(owner)).get(name)
        return None if document is None else decode_cursor(name, document), document

    async def _swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        async with call_budget():
            return await self._store.cursors.swap(owner, name, before, after)
