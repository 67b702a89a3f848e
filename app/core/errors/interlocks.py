"""The error of a command that interlocks refuse, as callers are shown it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.errors.base import HomingError


class InterlockError(HomingError):
    """Interlocks do not let the command through; nothing was sent.

    `interlocks` are those that refuse, as callers are shown them. They have members `interlock`, `say`, `conditions`.
    """

    def __init__(self, method: str, device_id: str, interlocks: Sequence[Mapping[str, Any]]) -> None:
        said = "; ".join(_refusal(one) for one in interlocks)
        super().__init__(f"{method} was not sent to {device_id}: {said}")
        self.method = method
        self.device_id = device_id
        self.interlocks = interlocks

    def without_values(self) -> InterlockError:
        """The same for a caller who may not read the device: without its values."""
        return InterlockError(self.method, self.device_id, [without_values(one) for one in self.interlocks])


def without_values(interlock: Mapping[str, Any]) -> dict[str, Any]:
    """Return an interlock as a caller is shown it who may not read the device."""
    rows = [{name: value for name, value in row.items() if name not in _VALUES} for row in interlock["conditions"]]
    return {**interlock, "conditions": rows}


_VALUES: Final = ("value", "age", "because")
"""The members of a condition that tell of the device."""


def _refusal(one: Mapping[str, Any]) -> str:
    rows = [row for row in one["conditions"] if row["result"] != "holds"]
    return f"interlock {one['interlock']} refuses, {one['say']}: " + ", ".join(_condition(row) for row in rows)


def _condition(row: Mapping[str, Any]) -> str:
    wanted = " and ".join(f"{name} {json.dumps(value)}" for name, value in row["wanted"].items())
    value = f" {json.dumps(row['value'])}" if "value" in row else ""
    age = f", said {row['age']} ago" if "age" in row else ""
    because = f" as {row['because']}" if "because" in row else ""
    is_what = f" is{value}{age}" if value else f" is {row['result']}{because}{age}"
    return f"{row['path']}{is_what}{because if value else ''} (needed: {wanted})"
