"""API keys over HTTP: one's own, and those of people and services that one administers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

import orjson
from fastapi import Path, Request
from fastapi import Response as Reply

from app.access.keys import NewKey
from app.api import problems
from app.api.dependencies import Records, WhoAsks
from app.api.http import NO_STORE, BytesResponse
from app.api.openapi import knows, problems_of
from app.api.pages import Listing
from app.api.parameters import MOST_LISTED, ListCursor, ListLimit, check_names
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1.access_models import KeyBody, KeyMade, KeyPage, Rotation
from app.core import errors
from app.core.access.keys import Key
from app.core.access.model import Credential
from app.core.durations import parse_duration
from app.core.errors import InvalidInputError

_PROBLEMS: Final = (
    BY_ERROR[errors.NoDirectoryError],
    BY_ERROR[errors.EntryNotFoundError],
    BY_ERROR[errors.EntryConflictError],
    BY_ERROR[errors.VersionConflictError],
    problems.INVALID,
    problems.ACCESS_STORE_AWAY,
)

router = GuardedRouter(prefix="/v1/keys", tags=["access"])

KeyId = Annotated[
    str,
    Path(
        description="The public id of the key, which is part of the key itself.",
        examples=["2F7QW9ZD"],
        pattern="^[0-9A-Z]{8}$",
    ),
]


@router.get(
    "",
    summary="List keys",
    response_model=KeyPage,
    response_description="The caller's own keys, and those of principals whom the caller administers.",
    responses=problems_of(BY_ERROR[errors.NoDirectoryError], problems.INVALID, problems.ACCESS_STORE_AWAY),
    openapi_extra=knows(),
)
async def list_keys(
    request: Request, records: Records, asker: WhoAsks, limit: ListLimit = MOST_LISTED, cursor: ListCursor = None
) -> Reply:
    """Includes expired and revoked keys. The secret of a key cannot be shown again."""
    check_names(request, ("limit", "cursor"))
    listing = Listing("keys", limit, cursor)
    found, behind = listing.part(asker.cursors, await records.keys.listed(asker.caller), lambda one: one.id)
    return BytesResponse(orjson.dumps({"keys": [_shown(one) for one in found], "cursor": behind}))


@router.post(
    "",
    status_code=201,
    summary="Create a key",
    response_model=KeyMade,
    response_description="The key. It is shown only once.",
    responses=problems_of(*_PROBLEMS),
    openapi_extra=knows(),
)
async def create_key(body: KeyBody, records: Records, asker: WhoAsks) -> Reply:
    """Creates a key for the caller, or for a principal or a device whom the caller administers.

    The caller must have all rights of that principal; of a device, `publish` and `read` on it. A narrowed key creates
    keys that are narrowed likewise.
    """
    days = None if body.never else body.days
    if body.device is not None and body.principal is not None:
        raise InvalidInputError("device", "is beside a principal; allowed is one of them")
    wanted = NewKey(
        principal=body.principal, device=body.device, label=body.label, narrow=tuple(body.narrow), days=days
    )
    key, credential = await records.keys.create(asker.caller, wanted)
    return _made(key, credential)


@router.post(
    "/{key_id}/rotate",
    status_code=201,
    summary="Replace a key",
    response_model=KeyMade,
    response_description="The new key. It is shown only once.",
    responses=problems_of(*_PROBLEMS),
    openapi_extra=knows(),
)
async def rotate_key(key_id: KeyId, body: Rotation, records: Records, asker: WhoAsks) -> Reply:
    """Creates a new key with the same rights. The old key stays valid for `grace`, so that users can change over."""
    try:
        grace = parse_duration(body.grace)
    except ValueError as error:
        raise InvalidInputError("grace", str(error)) from None
    key, credential, old = await records.keys.rotate(
        asker.caller,
        key_id,
        grace_us=grace // timedelta(microseconds=1),
        days=None if body.never else body.days,
    )
    return _made(key, credential, old=_shown(old))


@router.delete(
    "/{key_id}",
    status_code=204,
    summary="Revoke a key",
    response_description="The key is revoked for good.",
    responses=problems_of(*_PROBLEMS),
    openapi_extra=knows(),
)
async def revoke_key(key_id: KeyId, records: Records, asker: WhoAsks) -> Reply:
    """Other nodes reject the key once they have read the directory, each `HOMING_ACCESS_REFRESH` (0.5 s by default)."""
    await records.keys.revoke(asker.caller, key_id)
    return Reply(status_code=204)


def _made(key: Key, credential: Credential, **more: object) -> BytesResponse:
    shown = {**_shown(credential), "key": key.text, **more}
    return BytesResponse(orjson.dumps(shown), status=201, headers=[NO_STORE])


def _shown(one: Credential) -> dict[str, Any]:
    return {
        "id": one.id,
        "principal": one.principal_id,
        "label": one.name,
        "narrow": one.narrow,
        "created_at": instant(one.created_us),
        "expires_at": _instant(one.expires_us),
        "revoked_at": _instant(one.revoked_us),
        "last_used_at": _instant(one.last_used_us),
    }


def _instant(microseconds: int | None) -> str | None:
    return None if microseconds is None else instant(microseconds)
