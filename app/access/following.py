"""What a node knows of its access directory: the latest version that it could read, and how long ago that was.

No request waits for the directory (docs/adr/0036). While it is away, what was read last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from app.core.access.model import Document
from app.core.access.snapshot import Snapshot
from app.core.clock import Clock
from app.core.errors import DirectoryError, ForeignDirectoryError, HomingError, InvalidInputError, UnavailableError
from app.store.directory import AccessDirectory

AGREE_SECONDS: Final = 30.0
"""How often the cluster is asked which directory it has."""
TOUCH_SECONDS: Final = 30.0
"""How often the directory is told which keys were used."""


@dataclass(frozen=True, slots=True)
class View:
    """The directory as a node knows it."""

    document: Document
    snapshot: Snapshot
    """Of the document."""


class Following:
    """Looks for a new version every `interval` seconds, while `run`.

    `prepare` is done first, again and again until it succeeds. `changed` is called whenever another version counts;
    `agreed` tells which directory the cluster has, this one where none is known.
    """

    def __init__(
        self,
        directory: AccessDirectory,
        clock: Clock,
        *,
        prepare: Callable[[], Awaitable[None]],
        interval: float,
        changed: Callable[[], None],
        agreed: Callable[[str], Awaitable[str]],
    ) -> None:
        self._directory = directory
        self._prepare = prepare
        self._clock = clock
        self._interval = interval
        self._changed = changed
        self._agreed = agreed
        self._agreed_at = clock.monotonic()
        self._view: View | None = None
        self._refreshing: Final = asyncio.Lock()
        self._heard_at = clock.monotonic()
        self._trouble = "the access directory was not read yet"
        self._used: dict[str, int] = {}
        self._touched_at = clock.monotonic()
        self._log = structlog.get_logger()

    @property
    def view(self) -> View:
        """What counts now; UnavailableError before anything was read."""
        if self._view is None:
            raise UnavailableError(f"this node does not know yet who may do what: {self._trouble}")
        return self._view

    @property
    def known(self) -> bool:
        """Whether anything was read."""
        return self._view is not None

    @property
    def trouble(self) -> str:
        """Why it could not be read last; empty when it could."""
        return self._trouble

    @property
    def age(self) -> float:
        """How many seconds ago the directory was heard."""
        return self._clock.monotonic() - self._heard_at

    def use(self, credential_id: str, now_us: int) -> None:
        """Note that a key was used now, in microseconds."""
        self._used[credential_id] = now_us

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        started = False
        while True:
            try:
                if not started:
                    await self._prepare()
                    started = True
                view = await self.refresh()
                await self._touch()
                if self._clock.monotonic() - self._agreed_at >= AGREE_SECONDS:
                    await self._agree(view.document.cluster_id)
            except (UnavailableError, DirectoryError, InvalidInputError) as error:
                self._fail(error)
            await asyncio.sleep(self._interval)

    async def refresh(self) -> View:
        """Take the directory's latest version as what counts, and give it."""
        async with self._refreshing:  # an older version never takes the place of a newer one
            view = await self._read()
            fresh, self._view = view is not self._view, view
            self._trouble = ""
            self._heard_at = self._clock.monotonic()
        if fresh:  # only now, as nobody may act by rules that are too old
            self._changed()
        return view

    async def _read(self) -> View:
        view = self._view
        if view is not None and await self._directory.version() == view.document.version:
            return view
        document = await self._directory.read(None if view is None else view.document)
        if view is not None and document.cluster_id != view.document.cluster_id:
            raise DirectoryError("the access directory is another one than before; the node goes on with the old rules")
        if view is None:
            await self._agree(document.cluster_id)
        snapshot = await asyncio.to_thread(Snapshot.of, document)
        self._log.info("access_rules_read", version=document.version)
        return View(document, snapshot)

    async def _agree(self, own: str) -> None:
        """Return when the cluster has this directory; ForeignDirectoryError. The store may have lost it meanwhile."""
        others = await self._agreed(own)
        if others != own:
            raise ForeignDirectoryError(
                f"the other nodes on this store have another access directory ({others[:8]}…) than this one "
                f"({own[:8]}…), and a key that is revoked there would go on counting here: give all nodes the same "
                "HOMING_ACCESS_URL; if it was replaced on purpose, stop all nodes, and remove the field directory of "
                "mqtt:cluster in Redis"
            )
        self._agreed_at = self._clock.monotonic()

    async def close(self) -> None:
        """Tell the directory which keys were used."""
        await self._touch(at_once=True)

    async def _touch(self, *, at_once: bool = False) -> None:
        now = self._clock.monotonic()
        if self._used and (at_once or now - self._touched_at >= TOUCH_SECONDS):
            used, self._used, self._touched_at = self._used, {}, now
            try:
                await self._directory.touch(used)
            except HomingError:
                self._used = used | self._used  # it waits until the directory is back
                raise

    def _fail(self, error: HomingError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warning("access_rules_not_read", reason=self._trouble)
