"""The rig's record of a run: the history file, and the few counts that it shows and decides by while it runs."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Final

from app.core.clock import Clock
from homing_rig.chaos.history import Event, Fault, FaultPhase, HistoryWriter, Metric
from homing_rig.chaos.outages import StoreOutages


class Recorder:
    """Writes events with the time since the start of the run."""

    def __init__(self, writer: HistoryWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.operations = itertools.count()
        self.sequences = itertools.count()
        self.counts: Counter[str] = Counter()
        self.outages: Final = StoreOutages()

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._loop.time() - self._began

    def instant(self, wall: float) -> float:
        """An instant of the wall clock as seconds since the start of the run."""
        return self.now() - (self._clock.wall() - wall)

    def write(self, event: Event) -> None:
        """Append an event to the history."""
        self._writer.write(event)

    def fault(self, kind: str, target: str, phase: FaultPhase) -> None:
        """Note that something was broken or mended."""
        fault = Fault(at=self.now(), kind=kind, target=target, phase=phase)
        self.outages.take(fault)
        self.write(fault)

    def metric(self, source: str, name: str, value: float) -> None:
        """Note a figure."""
        self.write(Metric(at=self.now(), source=source, name=name, value=value))

    async def keep_flushing(self) -> None:
        """Once a second, so that a rig that dies leaves a history."""
        while True:
            await asyncio.sleep(1)
            self._writer.flush()
