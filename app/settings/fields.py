"""The kinds of values that settings have, and what checks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from app.core.addresses import split_address
from app.core.durations import parse_duration
from app.core.errors import InvalidInputError
from app.core.webhooks.destinations import Network, networks


def read_duration(value: object) -> object:
    """Durations are written as `1.5s`; other values pass."""
    return parse_duration(value) if isinstance(value, str) else value


def empty_is_none(value: object) -> object:
    """An empty variable in the environment means that there is none."""
    return None if value == "" else value


HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}", re.ASCII)
Duration = Annotated[timedelta, BeforeValidator(read_duration)]
Short = Annotated[Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(minutes=1))]
Long = Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=30))]
OptionalFile = Annotated[Path | None, BeforeValidator(empty_is_none)]


def read_networks(text: str) -> tuple[Network, ...]:
    """The networks that are written with commas between them; InvalidInputError."""
    return networks([one.strip() for one in text.split(",") if one.strip()])


def known_networks(text: str) -> str:
    """The text itself; ValueError when it names no networks."""
    or_value_error(read_networks, text)
    return text


Networks = Annotated[str, AfterValidator(known_networks)]


class SettingsGroup(BaseModel):
    """The settings of one subject."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def scheme_of(url: str, allowed: tuple[str, ...]) -> str:
    """The URL itself; ValueError when its scheme is none of those allowed."""
    scheme = split_address(url).scheme
    if scheme not in allowed:
        raise ValueError(f"scheme {scheme!a} is unknown; allowed: {', '.join(f'{one}://' for one in allowed)}")
    return url


def or_value_error(check: Callable[[str], object], value: str) -> str:
    """The value itself; what `check` says against it is raised as the ValueError that pydantic expects."""
    try:
        check(value)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None
    return value
