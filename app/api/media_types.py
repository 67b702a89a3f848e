"""The media types of bodies that are read at all, and of answers that are asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.api import problems
from app.api.http import BytesResponse
from app.api.problems import problem

_ALLOWED: Final = "application/json, application/*+json"
_ACCEPT: Final = [(b"accept", _ALLOWED.encode())]
_NEVER: Final = re.compile(rb"q=0(\.0{0,3})?")
"""The weight of a media type that is not accepted (RFC 9110, 12.4.2)."""


def accepts(accept: bytes | None, media_type: bytes) -> bool:
    """True if an `Accept` header names this media type, and not as one that is not accepted."""
    return accept is not None and any(_names(part, media_type) for part in accept.split(b","))


def _names(part: bytes, media_type: bytes) -> bool:
    name, *parameters = (one.strip().lower() for one in part.split(b";"))
    return name == media_type and not any(map(_NEVER.fullmatch, parameters))


def media_type_refusal(headers: Mapping[bytes, bytes]) -> BytesResponse | None:
    """The problem with a body that is not announced as JSON.

    A page in a browser can send other types to any host without asking first, so only `application/json` counts there;
    a client that names no type must be something else than a browser, which names its `Origin`.
    """
    given = headers.get(b"content-type")
    if given is None:
        if b"origin" not in headers:
            return None
        return problem(problems.NOT_JSON, "a browser must send Content-Type: application/json", _ACCEPT)
    media_type = given.partition(b";")[0].strip().lower()
    if media_type == b"application/json" or (media_type.startswith(b"application/") and media_type.endswith(b"+json")):
        return None
    shown = ascii(media_type[:64].decode("latin-1"))
    return problem(
        problems.NOT_JSON, f"{shown} is not JSON; allowed: {_ALLOWED}; add -H 'Content-Type: application/json'", _ACCEPT
    )
