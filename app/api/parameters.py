"""Parameters that several routes have: what they are, what is allowed, and the check that says so in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from pydantic import AfterValidator, BeforeValidator
from pydantic.json_schema import SkipJsonSchema

from app.api.cursors import ANY as ANY_CURSOR
from app.api.v1 import command_models as schemas
from app.api.v1.command_models import said
from app.core import identifiers
from app.core.characters import shown
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_command_id, validate_device_id
from app.core.profiles.lanes import LANE_NAME

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
MOST_LISTED: Final = 1_000


def query(description: str, pattern: str, example: str, *, alias: str | None = None) -> Any:  # noqa: ANN401 - as Query
    """A parameter of a query, as the documentation has it. The pattern checks nothing: see `said`."""
    return Query(alias=alias, description=description, json_schema_extra=said(pattern), examples=[example])


PROFILE: Final = "[a-z][a-z0-9_-]{0,31}"


def _profile(name: str) -> str:
    if re.fullmatch(PROFILE, name) is None:
        raise InvalidInputError(
            "name", "is none of a profile; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -"
        )
    return name


def lane_name(name: str) -> str:
    """Return the name of a lane; InvalidInputError."""
    if re.fullmatch(LANE_NAME, name) is None:
        raise InvalidInputError(
            "lane", "is none of a profile; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -"
        )
    return name


DeviceId = Annotated[
    str,
    Path(
        description="The id of the device, as it appears in the topics of its profile.",
        json_schema_extra=said(identifiers.DEVICE_ID),
        examples=[schemas.DEVICE_ID],
    ),
    AfterValidator(validate_device_id),
]
CommandId = Annotated[
    str,
    Path(
        description="The command.",
        json_schema_extra=said(identifiers.COMMAND_ID),
        examples=[schemas.COMMAND_ID],
    ),
    AfterValidator(validate_command_id),
]


def limit_up_to(most: int) -> BeforeValidator:
    """The check of a limit of so many entries."""

    def checked(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
            return int(text)
        raise InvalidInputError("limit", f"{text[:32]!a} is out of range; allowed: 1 to {most}")

    return BeforeValidator(checked)


Limit = Annotated[
    int,
    limit_up_to(MAX_LIMIT),
    Query(
        description="The maximum number of entries to return.",
        json_schema_extra={"minimum": 1, "maximum": MAX_LIMIT},
        examples=[20],
    ),
]
ListLimit = Annotated[
    int,
    limit_up_to(MOST_LISTED),
    Query(
        description="The maximum number of entries to return.",
        json_schema_extra={"minimum": 1, "maximum": MOST_LISTED},
        examples=[100],
    ),
]
"""The limit of lists that were whole in 0.2.0, and still are without it while they have at most MOST_LISTED entries."""
ListCursor = Annotated[
    str | SkipJsonSchema[None],
    query("The `cursor` of the previous page.", ANY_CURSOR, "2F7QW9ZD"),
]


def _dry_run(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidInputError("dry_run", f"{text[:32]!a} is none; allowed: true, false")
    return text == "true"


DryRunFlag = Annotated[
    bool,
    BeforeValidator(_dry_run),
    Query(
        description="Only say what would happen, and do nothing.",
        json_schema_extra=said("true|false"),
        examples=["true"],
    ),
]


def check_names(request: Request, allowed: Sequence[str], repeatable: Sequence[str] = ()) -> None:
    """Nothing that a query says is passed over in silence; InvalidInputError."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in allowed:
            raise InvalidInputError(shown(name), f"is unknown; allowed: {', '.join(allowed)}")
        if name not in repeatable and given.count(name) > 1:
            raise InvalidInputError(name, "is given twice; allowed: once")


ProfileName = Annotated[
    str,
    Path(
        description="The name of the profile.",
        json_schema_extra=said(PROFILE),
        examples=["homing"],
    ),
    AfterValidator(_profile),
]
