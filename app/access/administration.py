"""Changes of the access directory by callers: decided by what is on record now, and made all or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from app.access.authority import Authority, View
from app.core.access.changes import Change
from app.core.errors import DirectoryError, UnavailableError, VersionConflictError
from app.store.directory import AccessDirectory

TRIES: Final = 10
"""How often a change is decided again because somebody else was quicker."""

Decide = Callable[[View], Sequence[Change]]
"""What is to be changed, by what is on record; raises what keeps it from being changed."""


class Administration:
    """Writes the directory that the authority follows."""

    def __init__(self, directory: AccessDirectory, authority: Authority) -> None:
        self._directory = directory
        self._authority = authority

    async def change(self, decide: Decide) -> View:
        """Make the changes that `decide` finds; the directory after them, by which this node decides from now on.

        VersionConflictError when others were quicker each time; DirectoryUnavailableError, also when nobody knows
        whether the change was made.
        """
        for attempt in range(TRIES):
            view = await self._authority.refresh()
            changes = decide(view)
            if not changes:
                return view
            try:
                await self._directory.apply(changes, expected_version=view.document.version)
                break
            except VersionConflictError:
                if attempt == TRIES - 1:
                    raise
        with suppress(UnavailableError, DirectoryError):  # it is made, and is read with the next look
            await self._authority.refresh()
        return self._authority.view
