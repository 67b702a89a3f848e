"""Reads the file of learned timeouts (HOMING_TIMEOUTS_FILE) and refuses a wrong one with file, key and reason."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from app.core.commands.deadlines import LONGEST, NO_GROUP, VERSION, LearnedTimeouts, group_rule
from app.core.durations import parse_duration
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import validate_method

VARIABLE: Final = "HOMING_TIMEOUTS_FILE"
SHORTEST: Final = timedelta(milliseconds=1)


def _duration(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("is not text: write a number and its unit, such as '1.5s'")  # noqa: TRY004 - pydantic's way
    timeout = parse_duration(value)
    if not SHORTEST <= timeout <= LONGEST:
        raise ValueError(f"{value} is out of range; allowed: 1ms to 720h")
    return timeout


def _method(value: str) -> str:
    try:
        return validate_method(value)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None


def _rule(value: str) -> str:
    group_rule(value)
    return value


class _TimeoutEntry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)  # further keys say how it was found, for people

    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    method: Annotated[str, AfterValidator(_method)]
    device_group: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    timeout: Annotated[timedelta, BeforeValidator(_duration)]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.profile, self.method, self.device_group or NO_GROUP


class _TimeoutsFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    version: int
    device_group: Annotated[str, Field(max_length=512), AfterValidator(_rule)] | None = None
    timeout: list[_TimeoutEntry] = []

    @model_validator(mode="before")
    @classmethod
    def _known_version(cls, data: Any) -> Any:  # noqa: ANN401 - whatever TOML holds
        """First: with another version nothing else needs to be right."""
        version = data.get("version", VERSION)
        if version != VERSION:
            raise ValueError(f"version is {version!r}; allowed: {VERSION}. Make it anew with this release's analysis")
        return data

    @model_validator(mode="after")
    def _tells_rows_apart(self) -> _TimeoutsFile:
        seen: set[tuple[str, str, str]] = set()
        for number, entry in enumerate(self.timeout, 1):
            if entry.key in seen:
                raise ValueError(f"timeout {number} ({' '.join(entry.key).strip()}) is there already")
            if entry.device_group is not None and self.device_group is None:
                raise ValueError(f"timeout {number} is for a device_group, but the rule device_group is missing")
            seen.add(entry.key)
        return self


def load_timeouts(file: Path | None) -> LearnedTimeouts:
    """The timeouts of the file, none without a file; ConfigurationError names file, key and reason."""
    if file is None:
        return LearnedTimeouts()
    where = f"{VARIABLE}: {file}"
    try:
        data = _TimeoutsFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{where}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(": ".join(filter(None, (where, key, said)))) from None
    rule: re.Pattern[str] | None = None if data.device_group is None else group_rule(data.device_group)
    return LearnedTimeouts({entry.key: entry.timeout for entry in data.timeout}, rule)
