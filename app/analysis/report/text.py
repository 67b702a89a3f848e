"""How values read in the report: units everywhere, three digits, UTC, and nothing from the data that plays tricks."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final, TypeGuard

NOTHING: Final = "–"
"""Stands where there is no value."""
THIN: Final = "\u202f"
"""Between a number and its unit; does not break."""
LONGEST: Final = 80
"""Characters shown of any text from the data."""

_MINUTE_US, _HOUR_US = 60e6, 3600e6
_DURATIONS: Final = (
    (999_500, 1e3, "ms"),  # up to 1 s, rounded
    (2 * _MINUTE_US, 1e6, "s"),
    (2 * _HOUR_US, _MINUTE_US, "min"),
    (math.inf, _HOUR_US, "h"),
)


def digits(value: float, *, trim: bool = False) -> str:
    """Three significant digits, thousands with commas; `trim` drops zeros behind the point."""
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 or size == 0 else 3  # noqa: PLR2004
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if trim and places else text


def known(value: object) -> TypeGuard[float]:
    """Whether it is a number that can be shown and drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def duration(us: float | None, *, trim: bool = False) -> str:
    """Microseconds as µs, ms, s, minutes or hours."""
    if us is None or not known(us):
        return NOTHING
    if us < 0:
        return f"−{duration(-us, trim=trim)}"
    if us == 0:
        return f"0{THIN}s"
    if us < 999.5:  # noqa: PLR2004 - 1 ms, rounded
        return f"{us:.0f}{THIN}\u00b5s"
    size, unit = next((size, unit) for below, size, unit in _DURATIONS if us < below)
    return f"{digits(us / size, trim=trim)}{THIN}{unit}"


def share(value: float | None, *, trim: bool = False) -> str:
    """A share between 0 and 1 in percent; neither 0 % nor 100 % unless it is. `trim` drops zeros behind the point."""
    if value is None or not known(value):
        return NOTHING
    if value < 0:
        return f"−{share(-value, trim=trim)}"
    percent = value * 100
    if percent in {0, 100}:
        return f"{percent:.0f}{THIN}%"
    near = min(percent, abs(100 - percent))
    if near < 0.01:  # noqa: PLR2004
        return f"<{THIN}0.01{THIN}%" if percent < 1 else f">{THIN}99.99{THIN}%"
    text = f"{percent:.{1 if near >= 9.995 else 2}f}"  # noqa: PLR2004
    return f"{text.rstrip('0').rstrip('.') if trim else text}{THIN}%"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}" if value is not None and known(value) else NOTHING


def ratio(value: float | None) -> str:
    """How many times."""
    return f"{digits(value)}{THIN}×" if value is not None and known(value) else NOTHING


def with_unit(value: object, unit: str) -> str:
    """A value of summary.json or of a table, by its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not known(value):
        return NOTHING if value is None else clean(value)
    match unit:
        case "us":
            return duration(value)
        case "share":
            return share(value)
        case "ratio":
            return ratio(value)
        case "1/s":
            return f"{digits(value)}{THIN}/s"
        case "s":
            return duration(value * 1e6)
    return count(value) if isinstance(value, int) or value == int(value) else digits(value)


def clean(value: object, most: int = LONGEST) -> str:
    """Text from the data, with what is not printable (controls, marks that turn the direction) written as an escape."""
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return f"{minute(value)} UTC"
    text = str(value)
    if len(text) > most:
        text = text[: most - 1] + "…"
    return "".join(
        letter if letter.isprintable() or letter == THIN else letter.encode("unicode_escape", "replace").decode()
        for letter in text
    )


def code(text: object) -> str:
    """Lines of a query, as above, but whole."""
    return "\n".join(clean(line, len(line)) for line in str(text or "").strip().split("\n"))


def instant(value: object) -> datetime | None:
    """The instant, from a table or from summary.json."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.astimezone(UTC) if isinstance(at, datetime) else None


def minute(value: object) -> str:
    """2026-11-21 07:00, which is UTC; a dash when it is no instant."""
    at = instant(value)
    return f"{at:%Y-%m-%d %H:%M}" if at else NOTHING


def day(at: datetime) -> str:
    """21 Nov, in English whatever the machine's language."""
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{at.day} {months[at.month - 1]}"


def span(begin: object, end: object) -> str:
    """A period from its begin to its end, and how long it is."""
    low, high = instant(begin), instant(end)
    if low is None or high is None:
        return "no period"
    hours = (high - low).total_seconds() / 3600
    length = f"{digits(hours, trim=True)} h" if hours < 72 else f"{digits(hours / 24, trim=True)} days"  # noqa: PLR2004
    return f"{minute(low)} to {minute(high)} UTC ({length})"
