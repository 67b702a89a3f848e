"""The values that a deployment puts in place of the `[values]` of its profiles: the file of HOMING_PROFILES_VALUES."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.core.errors import ConfigurationError

Values = Mapping[str, Mapping[str, object]]
"""The values in place of the defaults of `[values]`, by the name of a profile."""


def read_values(file: Path | None) -> Values:
    """The tables of the file; ConfigurationError says what is wrong with it, and repeats no value: some are secret."""
    if file is None:
        return {}
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: not TOML: {error}") from None
    for name, table in found.items():
        if not isinstance(table, dict):
            raise ConfigurationError(f"{file}: {name}: is no table; allowed: [{name}] with values below")
    return found


def with_values(data: dict[str, Any], values: Values) -> dict[str, Any]:
    """The data of a profile file with its values; ConfigurationError when it has no such value."""
    given = values.get(str(data.get("name")), {})
    known = data.get("values", {})
    if not given or not isinstance(known, dict):
        return data
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, 1)
            meant = f"; is {near[0]} meant?" if near else ""
            allowed = ", ".join(known) or "none"
            raise ConfigurationError(f"values of profile {data['name']}: {key} is unknown{meant}; allowed: {allowed}")
    return {**data, "values": {**known, **given}}
