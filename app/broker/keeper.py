"""The keeper writes what a broker keeps: one batch after the other, each with all that changed until it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from app.broker.gate import GatedLink, PausableLink, SyncGate
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketType
from app.core.broker.restore import restore
from app.core.broker.rows import rows_of
from app.core.errors import StoreUnavailableError
from app.store.sessions import SessionStore

AGAIN_SECONDS: Final = 0.5

_log = structlog.get_logger(__name__)


_ANYTHING: Final = bytes((PacketType.PUBACK << 4,))
"""The beginning of what leaves only when it is true."""


class _Promise:
    """The socket of somebody who waits on this node to be told."""

    saturated = False
    unread = False

    def __init__(self, done: asyncio.Future[bool]) -> None:
        self.done: Final = done

    def write(self, _data: bytes) -> None:
        if not self.done.done():
            self.done.set_result(True)

    def close(self) -> None:
        if not self.done.done():
            self.done.set_result(False)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class SessionKeeper:
    """The broker's journal is noticed here, and what its connections say goes through a gate here.

    What cannot be written stays in the journal, and is tried again: memory is right about it, and nobody was told.
    Meanwhile CONNECT is refused, and whoever would be promised something is disconnected.
    """

    def __init__(self, broker: Broker, store: SessionStore) -> None:
        self._broker = broker
        self._store = store
        self._gate = SyncGate(self._look, broker.unsent)
        self._serving: asyncio.Task[None] | None = None
        self._open = False
        self._mistake: BaseException | None = None

    @property
    def health(self) -> str:
        """The health, as services say it."""
        if not self._open:
            return "the broker waits for what it keeps, which another process may have"
        return "sessions cannot be written to the store" if self._broker.unavailable else "ok"

    def check(self) -> None:
        """Raise the mistake that has ended the writing: what is held back would never leave. BrokerTakenOverError."""
        self._store.check()
        if self._mistake is not None:
            raise self._mistake

    def link(self, link: PausableLink) -> GatedLink:
        """The link for a connection with this socket."""
        return GatedLink(self._gate, link)

    async def kept(self) -> None:
        """Return when all that has changed until now is on the disk; StoreUnavailableError."""
        promise = _Promise(asyncio.get_running_loop().create_future())
        GatedLink(self._gate, promise).write(_ANYTHING)
        if not await promise.done:
            raise StoreUnavailableError("what the broker keeps cannot be written now")

    async def start(self) -> None:
        """Go on where the process of before has ended. ConfigurationError."""
        rows = await self._rows()
        self._open = True
        self._broker.journal.notice = self._look
        for key, reason in restore(self._broker, rows).items():
            self._broker.counters["drop.unreadable_record"] += 1
            _log.error("row_unreadable", kind="broker", name=ascii(key)[2:-1][:200], reason=reason)
        self._look()

    async def close(self) -> None:
        """Return when all is written, if the store takes it."""
        self._open = False
        if (serving := self._serving) is not None:
            try:
                await asyncio.wait([serving])
            except asyncio.CancelledError:
                serving.cancel()
                raise
        await self._store.close()

    async def _rows(self) -> Mapping[bytes, bytes]:
        while True:
            try:
                return await self._store.start()
            except StoreUnavailableError as error:
                _log.warning("broker_waits", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    def _look(self) -> None:
        if self._serving is None:
            # It begins when everything has been read that is there to be read now.
            self._serving = asyncio.create_task(self._serve(), name="broker keeper")
            self._serving.add_done_callback(self._ended)

    def _ended(self, serving: asyncio.Task[None]) -> None:
        if not serving.cancelled():
            self._mistake = self._mistake or serving.exception()

    async def _serve(self) -> None:
        try:
            while self._broker.journal.changed or self._gate.holds:
                changes = self._broker.journal.take()
                rows = rows_of(self._broker, changes)
                self._gate.seal()
                try:
                    if rows:
                        await self._store.write(rows)
                except StoreUnavailableError as error:
                    self._broker.journal.put_back(changes)
                    if not self._open:
                        return
                    await self._failed(error)
                else:
                    self._gate.release()
                    self._broker.unavailable = False
        finally:
            self._serving = None

    async def _failed(self, error: StoreUnavailableError) -> None:
        if not self._broker.unavailable:
            self._broker.unavailable = True
            _log.warning("broker_cannot_keep", reason=str(error))
        self._gate.drop()
        await asyncio.sleep(AGAIN_SECONDS)
