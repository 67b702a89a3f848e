"""The life of the event plane: the log is opened when it can be, and everything that works on it runs after that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from app.core.errors import UnavailableError
from app.events.cooler import Cooler
from app.events.gate import LogGate
from app.events.intake import Intake
from app.events.keeper import Keeper
from app.events.shared_intake import SharedIntake
from app.events.tail import Tails
from app.events.writer import EventWriter
from app.runtime.services import Service
from app.runtime.telemetry import Fill
from app.store.events import EventStore

START_AGAIN_SECONDS: Final = 0.5
LISTEN_SECONDS: Final = 5.0
"""The time that a node is not ready because nobody has subscribed to events yet: commands go on without them."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class EventLife:
    """The parts that live as long as the node does. With a `shared` intake the other one looks after presence alone."""

    store: EventStore
    gate: LogGate
    intake: Intake
    keeper: Keeper
    tails: Tails
    writer: EventWriter
    cooler: Cooler | None
    shared: SharedIntake | None
    _tried: bool = field(default=False, init=False)
    _listened: bool = field(default=False, init=False)

    def service(self) -> Service:
        """All of them, as one."""
        return Service(
            "events",
            self._run,
            drain=self._drain,
            close=self._close,
            keeps=self._keeps,
            check=self._health,
            fills=self._fills,
        )

    async def _run(self) -> None:
        await self._start()
        self.gate.is_open = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keeper.run(), name="events keeper")
            group.create_task(self.intake.run(), name="events intake")
            if self.shared is not None:
                group.create_task(self.shared.run(), name="shared events intake")
            if self.cooler is not None:
                group.create_task(self.cooler.run(), name="events cooler")
            group.create_task(self._listen(), name="first subscription to events")

    async def _start(self) -> None:
        """Open the log, as soon as it can be; ConfigurationError when that will never be."""
        while True:
            try:
                await self.store.start()
            except UnavailableError as error:
                self._tried = True
                _log.warning("events_not_open", reason=str(error))
                await asyncio.sleep(START_AGAIN_SECONDS)
            else:
                return

    async def _listen(self) -> None:
        """Wait for the first subscription: the broker keeps for nobody what devices say before it."""
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                await self.intake.listened()
                if self.shared is not None:
                    await self.shared.listened()
        except TimeoutError:
            _log.warning("events_not_subscribed", seconds=LISTEN_SECONDS)
        self._listened = True

    async def _drain(self) -> None:
        if self.shared is not None:
            await self.shared.hand_over()

    def _keeps(self) -> bool:
        return self.shared is not None and self.shared.keeps_session

    async def _close(self) -> None:
        self.gate.is_open = False
        await self.tails.close()
        await self.intake.close()
        if self.shared is not None:
            await self.shared.close()
        await self.writer.close()
        if self.cooler is not None:
            await self.cooler.close()
        await self.store.close()

    def _health(self) -> str:
        """Only the first try is waited for, to open the log and to subscribe: commands go on without events."""
        if self._tried or self._listened:
            return "ok"
        return "nobody has subscribed to events yet" if self.gate.is_open else "the event log is not open yet"

    def _fills(self) -> dict[str, Fill]:
        return {
            "followers": self.tails.fill(),
            "events": self.writer.fill(),
            **(self.store.fills() if self.gate.is_open else {}),
        }
