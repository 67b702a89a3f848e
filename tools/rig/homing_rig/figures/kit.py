"""The kit of all measurements: figures with aims, their rendering, and steady rates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import count
from time import perf_counter
from typing import Any, Final

import orjson

from app.core.errors import HomingError
from app.runtime.system import SystemClock
from homing_client import HomingError as CallError
from homing_rig.machine import describe_machine
from homing_rig.statistics import median, percentile

MIB: Final = 1024 * 1024


class FigureError(HomingError):
    """The measurement did not run as it should, so its figures mean nothing."""


class Format(StrEnum):
    """The format in which figures are written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, with the least and the most of those that it is the median of, and with its aim, where it has them."""

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    count: int | None = None
    """The number of values that it is the median of."""
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        """True if the value is within its aim; None when it has none."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def spread(self) -> str:
        """The values that it is the median of, in words."""
        return "" if self.low is None or self.high is None else f"{self.low:.4g} to {self.high:.4g}, of {self.count}"

    @property
    def aim(self) -> str:
        """The aim, and whether it is reached, in words; empty when there is none."""
        bounds = (("at least", self.least), ("at most", self.most))
        aims = " and ".join(f"{word} {bound:g}{self.unit}" for word, bound in bounds if bound is not None)
        return aims and f"{aims}: {'reached' if self.reached else 'MISSED'}"

    def __str__(self) -> str:
        spread, aim = self.spread and f" ({self.spread})", self.aim and f"; aim: {self.aim}"
        return f"{self.name}: {self.value:.4g}{self.unit}{spread}{aim}"


@dataclass
class Findings:
    """The notes and figures of a measurement, in order. `write` gets each as a line as soon as it is known."""

    title: str
    write: Callable[[str], object]
    entries: list[str | Figure] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a sentence."""
        self._add(text)

    def figure(
        self, name: str, value: float, unit: str = "", *, least: float | None = None, most: float | None = None
    ) -> None:
        """Add a figure, with the least and the most that it should be."""
        self._add(Figure(name, value, unit, least=least, most=most))

    def spread(self, name: str, values: Sequence[float], unit: str = "", *, most: float | None = None) -> None:
        """Add the median of these values, which should be `most` at most, with the least and the most of them."""
        ends = (min(values), max(values)) if values else (0.0, 0.0)
        self._add(Figure(name, median(values), unit, *ends, len(values), most=most))

    @property
    def reached(self) -> bool:
        """True if no figure misses its aim."""
        return not any(entry.reached is False for entry in self.entries if isinstance(entry, Figure))

    def _add(self, entry: str | Figure) -> None:
        self.entries.append(entry)
        self.write(str(entry))


def as_markdown(findings: Findings) -> str:
    """The notes as a list, and the figures as a table."""
    notes = [f"- {entry}" for entry in findings.entries if isinstance(entry, str)]
    figures = [entry for entry in findings.entries if isinstance(entry, Figure)]
    rows = [f"| {one.name} | {one.value:.4g}{one.unit} | {one.spread} | {one.aim} |" for one in figures]
    table = ["| figure | value | from and to | aim |", "|---|---|---|---|", *rows] if rows else []
    parts = ([f"## {findings.title}"], notes, table)
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def as_json(findings: Findings) -> str:
    """A JSON document."""
    figures = [asdict(one) | {"reached": one.reached} for one in findings.entries if isinstance(one, Figure)]
    document: dict[str, Any] = {
        "title": findings.title,
        "machine": describe_machine(),
        "notes": [entry for entry in findings.entries if isinstance(entry, str)],
        "figures": figures,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def p99(values: Sequence[float]) -> float:
    """The value that 99 % of these do not exceed."""
    return percentile(sorted(values), 0.99)


async def paced(rate: float, number: int | None = None) -> AsyncIterator[int]:
    """`number` numbers from 0, or numbers without end, at a steady rate per second; late ones come at once."""
    began = perf_counter()
    for at in count() if number is None else range(number):
        await asyncio.sleep(max(0.0, began + at / rate - perf_counter()))
        yield at


async def timed(
    call: Callable[[int], Awaitable[object]],
    rate: float,
    seconds: float = 0.0,
    until: asyncio.Task[Any] | None = None,
) -> list[float]:
    """The seconds that calls take, sorted, at a steady rate for so long, or until something has ended.

    `call` is given a number. FigureError where one of them fails.
    """
    took: list[float] = []
    failed = Counter[str]()

    async def one(number: int) -> None:
        began = perf_counter()
        try:
            await call(number)
        except CallError as error:
            failed[str(error)[:200]] += 1
        took.append(perf_counter() - began)

    async with asyncio.TaskGroup() as calls:
        async for number in paced(rate, None if until is not None else max(1, round(rate * seconds))):
            if until is not None and until.done():
                break
            calls.create_task(one(number))
    if failed:
        raise FigureError(f"commands have failed: {dict(failed)}")
    return sorted(took)


def seconds_since(instant: str) -> float:
    """The age of this instant, which is in ISO 8601, by the clock of this machine."""
    return SystemClock().wall() - datetime.fromisoformat(instant).timestamp()
