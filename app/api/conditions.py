"""`ETag`, `If-Match` and `If-None-Match` (RFC 9110, sections 8.8.3 and 13.1)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Header
from pydantic.json_schema import SkipJsonSchema

from app.access.conditions import ANY, Precondition
from app.core.errors import InvalidInputError

_TAGS: Final = re.compile(r'\s*(?:W/)?"([!#-~]*)"\s*(?:,|$)')

_ALLOWED: Final = r"^\*$|^(W/)?\"[!#-~]*\"(\s*,\s*(W/)?\"[!#-~]*\")*$"
_Match = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="If-Match",
        description="Make the change only if the record still has this `ETag`. `*` matches any existing record.",
        json_schema_extra={"pattern": _ALLOWED},
        examples=['"5f2c8d1e90ab"'],
    ),
]
_NoneMatch = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="If-None-Match",
        description="`*`: make the change only if there is no record yet.",
        json_schema_extra={"pattern": _ALLOWED},
        examples=["*"],
    ),
]


async def _condition(if_match: _Match = None, if_none_match: _NoneMatch = None) -> Precondition:
    return Precondition(_tags("If-Match", if_match), _tags("If-None-Match", if_none_match))


def _tags(header: str, value: str | None) -> frozenset[str] | None:
    if value is None:
        return None
    if value.strip() == ANY:
        return frozenset({ANY})
    found, at = [], 0
    while at < len(value):
        tag = _TAGS.match(value, at)
        if tag is None:
            raise InvalidInputError(header, 'is no list of tags; allowed: * or "…", as ETag gave it')
        found.append(tag[1])
        at = tag.end()
    if not found:  # as of a script whose variable is empty: nothing may be changed on no condition by mistake
        raise InvalidInputError(header, 'is empty; allowed: * or "…", as ETag gave it')
    return frozenset(found)


def etag(tag: str) -> tuple[bytes, bytes]:
    """The header that names a state."""
    return b"etag", f'"{tag}"'.encode()


Conditional = Annotated[Precondition, Depends(_condition)]
"""The precondition that a caller states."""
