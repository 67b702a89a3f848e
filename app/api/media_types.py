"""The media types of bodies that are read at all, and of answers that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import problems
from app.api.http import BytesResponse
from app.api.problems import problem

_ALLOWED: Final = "application/json, application/*+json"
_ACCEPT: Final = [(b"accept", _ALLOWED.encode())]


def accepts(accept: bytes | None, media_type: bytes) -> bool:
    """True if an `Accept` header names this media type."""
    return accept is not None and any(
        part.partition(b";")[0].strip().lower() == media_type for part in accept.split(b",")
    )


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
