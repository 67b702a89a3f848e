"""Pages of lists out of which a caller reads only a part: they are filled up, and what is left out shows nowhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final, TypeVar

from app.api.cursors import Cursors
from app.core.commands.command import Command
from app.core.errors import InvalidInputError
from app.store.commands import CommandSlice, Query
from app.store.rules import page_cursor

T = TypeVar("T")
MOST_PLACE: Final = 256
"""Bytes of the longest name by which `part` knows its place."""
LOOK: Final = 200
"""The number of commands that are looked at together, once a first look has not filled the page."""
LOOKS: Final = 10
"""After so many looks a page is short, though there may be more: 2,000 commands of others in front of one's own."""


async def filled(
    read: Callable[[Query], Awaitable[CommandSlice]],
    asked: Query,
    may_read: Callable[[Command], bool],
    *,
    sees_all: bool,
) -> CommandSlice:
    """Return so many commands that the caller may read as are asked for; a cursor only if there may be more."""
    if sees_all:
        return await read(asked)
    shown: list[Command] = []
    cursor, look = asked.cursor, asked.limit + 1
    for _ in range(LOOKS):
        page = await read(replace(asked, cursor=cursor, limit=look))
        shown += [one for one in page.commands if may_read(one)]
        if len(shown) > asked.limit:
            shown = shown[: asked.limit]
            return CommandSlice(shown, page_cursor(shown[-1].created_at, shown[-1].id))
        if page.cursor is None:
            return CommandSlice(shown, None)
        cursor, look = page.cursor, LOOK
    return CommandSlice(shown, cursor)


@dataclass(frozen=True, slots=True)
class Listing:
    """The part that is asked for of a list that is whole in memory."""

    kind: str
    limit: int
    cursor: str | None

    def part(self, cursors: Cursors, entries: Sequence[T], place: Callable[[T], str]) -> tuple[list[T], str | None]:
        """The entries in the order of their places, of which no two are the same; and the cursor, if there are more.

        InvalidInputError for an empty cursor, which a script passes whose variable is not set.
        """
        if self.cursor == "":
            raise InvalidInputError("cursor", "is empty; leave it out to begin with the first page")
        behind = "" if self.cursor is None else cursors.take(self.kind, self.cursor)
        found = nsmallest(self.limit + 1, (one for one in entries if place(one) > behind), key=place)
        if len(found) <= self.limit:
            return found, None
        return found[:-1], cursors.give(self.kind, place(found[-2]), MOST_PLACE)
