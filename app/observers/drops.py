"""Counts what was dropped, and says so in the log."""

from __future__ import annotations

from app.callbacks.observer import Observer
from app.runtime.telemetry import BurstLog


class Drops(Observer):
    """A device that sends rubbish a thousand times a second costs one line in ten seconds, and never its payload."""

    def __init__(self, log: BurstLog) -> None:
        self._log = log

    def dropped(
        self,
        reason: str,
        *,
        topic: str | None = None,
        device_id: str | None = None,
        command_id: str | None = None,
        profile: str | None = None,
    ) -> None:
        self._log.drop(reason, topic=topic, device_id=device_id, command_id=command_id, profile=profile)
