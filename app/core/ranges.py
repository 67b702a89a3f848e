"""Ranges of values that an option may have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.core.durations import format_duration
from app.core.errors import ConfigurationError


def check_range(option: str, value: Any, low: Any, high: Any) -> None:  # noqa: ANN401 - numbers or durations
    """ConfigurationError names the option and what is allowed, both ends included. None is allowed."""
    if value is not None and not low <= value <= high:
        raise ConfigurationError(f"{option} is {_said(value)}; allowed: {_said(low)} to {_said(high)}")


def _said(value: Any) -> str:  # noqa: ANN401 - likewise
    if isinstance(value, timedelta):
        return format_duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
