"""A node's copy of its access directory: the latest version that it could read, and how long ago that was.

No request waits for the directory (docs/adr/0036). While it is away, what was read last counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from app.access.rules_copy import AGAIN_SECONDS, RulesCopier
from app.core.access.callers import Caller
from app.core.access.model import Document
from app.core.access.snapshot import Snapshot
from app.core.clock import Clock
from app.core.errors import (
    DirectoryError,
    DirectoryUnavailableError,
    ForeignDirectoryError,
    HomingError,
    InvalidInputError,
    StoreUnavailableError,
    UnavailableError,
)
from app.store.directory import AccessDirectory

AGREE_SECONDS: Final = 30.0
"""The time after which the cluster is asked again which directory it has."""
LATE: Final = timedelta(seconds=2.5)
"""The time that the first steps may take before a node looks for a copy of the rules."""
TOUCH_SECONDS: Final = 30.0
"""The time after which the directory is told again which keys were used."""


@dataclass(frozen=True, slots=True)
class View:
    """The directory as a node knows it."""

    document: Document
    snapshot: Snapshot
    """The snapshot of the document."""
    copied: bool = False
    """True if it is a copy that other nodes have kept, in which hashes of passwords are missing."""


class DirectoryFollower:
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
        copying: RulesCopier | None = None,
        late: timedelta = LATE,
    ) -> None:
        self._directory = directory
        self._prepare = prepare
        self._clock = clock
        self._interval = interval
        self._changed = changed
        self._agreed = agreed
        self._copying = copying
        self._late = late.total_seconds()
        self._kept_at = -math.inf
        self._kept: int | None = None
        """The version of which a copy was kept last."""
        self._agreed_at = clock.monotonic()
        self._view: View | None = None
        self._refreshing: Final = asyncio.Lock()
        self.heard_at = clock.monotonic()
        """The instant at which the directory was read, on the monotonic clock."""
        self._trouble = "the access directory was not read yet"
        self._away: str | None = None
        self._used: dict[str, int] = {}
        self._touched_at = clock.monotonic()
        self._log = structlog.get_logger()

    @property
    def view(self) -> View:
        """The view that counts now; UnavailableError before anything was read."""
        if self._view is None:
            raise UnavailableError(f"this node does not know yet who may do what: {self._trouble}")
        return self._view

    @property
    def known(self) -> bool:
        """True if anything was read."""
        return self._view is not None

    @property
    def trouble(self) -> str:
        """The reason why the directory could not be read last; empty when it could."""
        return self._trouble

    @property
    def age(self) -> float:
        """The number of seconds since the directory was heard."""
        return self._clock.monotonic() - self.heard_at

    def use(self, caller: Caller, now_us: int) -> None:
        """Note that the caller's key was used now, in microseconds."""
        if caller.credential_id is not None:
            self._used[caller.credential_id] = now_us

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        started = False
        while True:
            try:
                if not started:
                    await self._prepared()
                    started = True
                view = await self.refresh()
                await self._keep(view, self._kept_at + AGAIN_SECONDS)
                await self._touch()
                if self._clock.monotonic() - self._agreed_at >= AGREE_SECONDS:
                    await self._agree(view.document.cluster_id)
            except (UnavailableError, DirectoryError, InvalidInputError) as error:
                self._fail(f"{error}{await self._get_along()}")
                if isinstance(error, DirectoryUnavailableError):
                    self._away = str(error)
            await asyncio.sleep(self._interval)

    async def _prepared(self) -> None:
        """`prepare`, beside which a copy is looked for when it takes long: migrations have no bound."""
        preparing = asyncio.ensure_future(self._prepare())
        try:
            await asyncio.wait({preparing}, timeout=self._late)
            if not preparing.done():
                await self._get_along()
            await preparing
        finally:
            preparing.cancel()

    async def now(self) -> View:
        """`refresh`, for callers: DirectoryUnavailableError at once while the directory is known to be away."""
        self.check_there()
        return await self._refresh(self.check_there)

    def check_there(self) -> None:
        """DirectoryUnavailableError while the directory is known to be away."""
        if self._away is not None:
            raise DirectoryUnavailableError(self._away)

    async def refresh(self) -> View:
        """Take the directory's latest version as what counts, and give it."""
        return await self._refresh(lambda: None)

    async def _refresh(self, check: Callable[[], None]) -> View:
        async with self._refreshing:  # an older version never takes the place of a newer one
            check()  # what was found out while others were before us
            try:
                view = await self._read()
            except DirectoryUnavailableError as error:
                self._away = str(error)
                raise
            fresh, self._view = view is not self._view, view
            self._trouble, self._away = "", None
            self.heard_at = self._clock.monotonic()
        if fresh:  # only now, as nobody may act by rules that are too old
            self._changed()
        return view

    async def _read(self) -> View:
        view = self._view
        own = None if view is None or view.copied else view
        if own is not None and await self._directory.version() == own.document.version:
            return own
        document = await self._directory.read(None if own is None else own.document)
        if view is not None and document.cluster_id != view.document.cluster_id:
            raise DirectoryError("the access directory is another one than before; the node goes on with the old rules")
        if own is None:
            await self._agree(document.cluster_id)
        snapshot = await asyncio.to_thread(Snapshot.of, document)
        self._log.info("access_rules_read", version=document.version)
        return View(document, snapshot)

    async def _keep(self, view: View, again_at: float) -> None:
        """Keep a copy for nodes that start while the directory is away: of a new version, and anew at some instant."""
        now = self._clock.monotonic()
        if self._copying is None or (self._kept == view.document.version and now < again_at):
            return
        with suppress(StoreUnavailableError):  # it is done with the next look
            await self._copying.keep(view.document, self.age)
            self._kept, self._kept_at = view.document.version, now

    async def _get_along(self) -> str:
        """Without the directory; what is to be said of that."""
        view = self._view
        if view is None:
            try:
                return await self._borrow()
            except StoreUnavailableError as error:
                return f"; nor can a copy of the rules be looked for: {error}"
        if not view.copied:  # what changed last may not be in the copy yet
            await self._keep(view, math.inf)
        return ""

    async def _borrow(self) -> str:
        """Go by the copy that other nodes have kept, until the directory is back."""
        if self._copying is None:
            return "; this node has no rules to go by, and waits for it"
        copy = await self._copying.find()
        if copy is None or await self._agreed(copy.document.cluster_id) != copy.document.cluster_id:
            return "; no node has kept a copy of the rules that this node may go by, and so it waits"
        snapshot = await asyncio.to_thread(Snapshot.of, copy.document)
        age = self._copying.age(copy)
        async with self._refreshing:
            if self._view is None:
                self._view = View(copy.document, snapshot, copied=True)
                self.heard_at = self._clock.monotonic() - age
        self._log.warning("access_rules_borrowed", version=copy.document.version, age=round(age))
        self._changed()
        return ""

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

    def _fail(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._log.warning("access_rules_not_read", reason=self._trouble)
