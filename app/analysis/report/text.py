"""The text of values in the report: units everywhere, three digits, UTC, and nothing from the data plays tricks."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Final, TypeGuard

NOTHING: Final = "–"
THIN: Final = "\u202f"
"""The space between a number and its unit; it does not break."""
_DURATIONS: Final = (
    (999.5, 1.0, "µs"),
    (999_500, 1e3, "ms"),
    (120e6, 1e6, "s"),
    (7200e6, 60e6, "min"),
    (math.inf, 3600e6, "h"),
)
"""The units of durations: up to so many microseconds, rounded, in this unit."""


def known(value: object) -> TypeGuard[float]:
    """True if it is a number that can be shown and drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def digits(value: float, *, trim: bool = False) -> str:
    """Three significant digits, thousands with commas; `trim` drops zeros behind the point."""
    places = next((places for places, least in enumerate((99.95, 9.995, 0.9995)) if abs(value) >= least), 3)
    text = f"{value:,.{places if value else 2}f}"
    return text.rstrip("0").rstrip(".") if trim and places else text


def _number(show: Callable[[float, bool], str]) -> Callable[..., str]:
    """Show a number with a dash for what is not known, and a minus as it is printed."""

    @wraps(show)
    def shown(value: object, *, trim: bool = False) -> str:
        return f"{'−' if value < 0 else ''}{show(abs(value), trim)}" if known(value) else NOTHING

    return shown


@_number
def duration(us: float, trim: bool) -> str:  # noqa: FBT001 - of the decorator
    """Microseconds as µs, ms, s, minutes or hours."""
    if us == 0:
        return f"0{THIN}s"
    size, unit = next((size, unit) for below, size, unit in _DURATIONS if us < below)
    return f"{digits(us / size, trim=trim or size == 1)}{THIN}{unit}"


@_number
def share(value: float, trim: bool) -> str:  # noqa: FBT001 - likewise
    """In percent; neither 0 % nor 100 % unless it is."""
    percent = value * 100
    near = min(percent, abs(100 - percent))
    if 0 < near < 0.01:  # noqa: PLR2004 - the least that two places show
        return f"<{THIN}0.01{THIN}%" if percent < 1 else f">{THIN}99.99{THIN}%"
    text = f"{percent:.{0 if near == 0 else 1 if near >= 9.995 else 2}f}"  # noqa: PLR2004 - three digits
    return f"{text.rstrip('0').rstrip('.') if trim and '.' in text else text}{THIN}%"


@_number
def count(value: float, _trim: bool) -> str:  # noqa: FBT001 - likewise
    """A whole number with its thousands apart."""
    return f"{value:,.0f}"


@_number
def ratio(value: float, trim: bool) -> str:  # noqa: FBT001 - likewise
    """The text of a factor."""
    return f"{digits(value, trim=trim)}{THIN}×"


_UNITS: Final[dict[str, Callable[..., str]]] = {
    "us": duration,
    "share": share,
    "ratio": ratio,
    "1/s": lambda value: f"{digits(value)}{THIN}/s",
    "s": lambda value: duration(value * 1e6),
}


def with_unit(value: object, unit: str) -> str:
    """A value of summary.json or of a table, by its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not known(value):
        return NOTHING if isinstance(value, float) else clean(value)
    if unit in _UNITS:
        return _UNITS[unit](value)
    return count(value) if value == int(value) else digits(value)


def clean(value: object, most: int = 80, kept: str = THIN) -> str:
    """Text from the data, with what is not printable (controls, marks that turn the direction) written as an escape."""
    if value is None:
        return NOTHING
    text = f"{minute(value)} UTC" if isinstance(value, datetime) else str(value)
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape", "replace").decode()
        for letter in (text if len(text) <= most else f"{text[: most - 1]}…")
    )


def minute(at: datetime | str) -> str:
    """2026-11-21 07:00, which is UTC; of a table or of summary.json."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def day(at: datetime) -> str:
    """21 Nov."""
    return f"{at.day} {at:%b}"


def span(begin: str | None, end: str | None) -> str:
    """A period from its begin to its end, and how long it is."""
    if begin is None or end is None:
        return "no period"
    hours = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)) / timedelta(hours=1)
    length = f"{digits(hours, trim=True)} h" if hours < 72 else f"{digits(hours / 24, trim=True)} days"  # noqa: PLR2004
    return f"{minute(begin)} to {minute(end)} UTC ({length})"
