"""What a node says about itself: structured logs with stable event names, and counters by reason."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Literal, NamedTuple, Protocol

import structlog

Counters = Counter[str]
"""Counts under stable names such as `drop.retained`; one for the whole node."""


class Fill(NamedTuple):
    """How full a bounded queue is."""

    size: int
    bound: int


class _Monotonic(Protocol):
    def monotonic(self) -> float: ...


def configure_logging(level: str, log_format: Literal["console", "json"]) -> None:
    """Send structured logs to standard error, in one line each."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


class BurstLog:
    """Counts what is dropped and logs the first of each burst, then one line per interval with the number since.

    A device that sends rubbish a thousand times a second costs one line in ten seconds, and never its payload.
    """

    def __init__(self, counters: Counters, clock: _Monotonic, interval: float = 10.0) -> None:
        self._counters = counters
        self._clock = clock
        self._interval = interval
        self._next_line: dict[str, float] = {}
        self._since: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def drop(self, reason: str, **ids: str) -> None:
        """Count one drop under `drop.<reason>`; `ids` go into the line, if one is written."""
        self._counters[f"drop.{reason}"] += 1
        self._since[reason] += 1
        now = self._clock.monotonic()
        if now >= self._next_line.get(reason, 0.0):
            self._next_line[reason] = now + self._interval
            self._log.warning("message_dropped", reason=reason, count=self._since.pop(reason), **ids)
