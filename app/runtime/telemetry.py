"""A node's reports about itself: structured logs with stable event names, and counters by reason."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol

import structlog

from app.runtime.log_lines import LogLines

Counters = Counter[str]
"""Counts under stable names such as `drop.retained`; one for the whole node."""


class Fill(NamedTuple):
    """The size of a bounded queue, and its bound."""

    size: int
    bound: int


class _Monotonic(Protocol):
    def monotonic(self) -> float: ...


_speaker: ContextVar[Callable[[], Mapping[str, str]] | None] = ContextVar("speaker", default=None)


def speak_as(ids: Callable[[], Mapping[str, str]]) -> None:
    """Let every record of this task, and of the tasks that it starts, carry these ids. Asked anew for each record."""
    _speaker.set(ids)


def configure_logging(level: str, log_format: Literal["console", "json"]) -> None:
    """Send structured logs to standard error. In JSON a record is one line; on a console a traceback follows it.

    There are colours at a terminal only, and none where `NO_COLOR` is set (https://no-color.org).
    """
    lines = LogLines(sys.stderr)
    colours = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    rendering: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [
            _without_incarnation,
            _escape,
            # Not rich's tracebacks: those show the values of variables, and so payloads and passwords.
            structlog.dev.ConsoleRenderer(
                colors=colours, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
    structlog.configure(
        processors=[
            _add_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


def _add_ids(_logger: object, _method: str, record: structlog.typing.EventDict) -> structlog.typing.EventDict:
    speaker = _speaker.get()
    return record if speaker is None else {**speaker(), **record}


def _without_incarnation(
    _logger: object, _method: str, record: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """It is for programs that compare: in each line at a terminal it would push the words aside."""
    return {name: value for name, value in record.items() if name != "incarnation"}


def _escape(_logger: object, _method: str, record: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what devices and callers named: it must not steer a terminal, nor look like another record."""
    return {name: _escaped(value) if name != "exception" else value for name, value in record.items()}


def _escaped(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    if not isinstance(value, str) or value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")


class Bursts:
    """Says when to log what happens often: at the first of a burst, then once per interval with the number since."""

    def __init__(self, clock: _Monotonic, interval: float = 10.0) -> None:
        self._clock = clock
        self._interval = interval
        self._next_line: dict[str, float] = {}
        self._since: Counter[str] = Counter()

    def count(self, reason: str) -> int:
        """Count one; how many a line written now would speak of, or 0 when none is due. `reason` is one of a few."""
        self._since[reason] += 1
        now = self._clock.monotonic()
        if now < self._next_line.get(reason, 0.0):
            return 0
        self._next_line[reason] = now + self._interval
        return self._since.pop(reason)


class BurstLog:
    """Counts what is dropped and logs it in bursts.

    A device that sends rubbish a thousand times a second costs one line in ten seconds, and never its payload.
    """

    def __init__(self, counters: Counters, clock: _Monotonic, interval: float = 10.0) -> None:
        self._counters = counters
        self._bursts = Bursts(clock, interval)
        self._log = structlog.get_logger()

    def drop(self, reason: str, **ids: str | None) -> None:
        """Count one drop under `drop.<reason>`; the `ids` that are known go into the line, if one is written.

        With a `profile` it is counted under `dropped_of.<profile>.<reason>` as well.
        """
        self._counters[f"drop.{reason}"] += 1
        if (profile := ids.get("profile")) is not None:
            self._counters[f"dropped_of.{profile}.{reason}"] += 1
        count = self._bursts.count(reason)
        if count:
            known = {name: one for name, one in ids.items() if one is not None}
            self._log.warning("message_dropped", reason=reason, count=count, **known)
