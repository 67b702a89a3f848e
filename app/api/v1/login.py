"""Logging in with a password, and out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.access.login.logins import IssuedLogin, Logins
from app.api import problems
from app.api.dependencies import LoginsOrNone, WhoAsks
from app.api.http import NO_STORE, BytesResponse, headers_of, read_body
from app.api.media_types import media_type_refusal
from app.api.openapi import json_of, knows, problems_of
from app.api.problems import BY_ERROR, problem
from app.api.representation import instant
from app.api.routers import GuardedRouter, PublicRouter
from app.api.v1 import login_models as models
from app.core import errors
from app.core.errors import InvalidInputError
from app.core.payload import JsonValue, decode_json
from app.core.peers import network_of

MAX_NAME: Final = 256
_AWAY: Final = BY_ERROR[errors.DirectoryUnavailableError]
NOTHING_TO_LOG_IN_TO: Final = "this node does not authenticate its callers: there is nothing to log in to"

router = PublicRouter(prefix="/v1", tags=["access"])
"""The routes for callers whom nobody knows yet, as they are about to log in."""
guarded = GuardedRouter(prefix="/v1", tags=["access"])


@router.post(
    "/login",
    status_code=201,
    summary="Log in with a name and a password",
    response_model=models.Login,
    response_description="A key that expires after twelve hours. It is listed and can be revoked like any other key.",
    responses=problems_of(
        BY_ERROR[errors.UnauthenticatedError],
        problems.NOTHING_TO_LOG_IN_TO,
        problems.SLOW_BODY,
        BY_ERROR[errors.PayloadTooLargeError],
        problems.NOT_JSON,
        problems.INVALID,
        BY_ERROR[errors.UndecodableMessageError],
        BY_ERROR[errors.CapacityError],
        BY_ERROR[errors.RateLimitError],
        problems.UNAVAILABLE,
        BY_ERROR[errors.NodeDrainingError],
        _AWAY,
        public=True,
    ),
    openapi_extra={"requestBody": {"required": True, "content": json_of(models.LoginBody)}},
)
async def log_in(request: Request, logins: LoginsOrNone) -> Reply:
    """Creates a key for a person; services use keys of their own. Other nodes accept the key within a second.

    Within a minute, five attempts are checked for one person from one address, and HOMING_ACCESS_LOGINS (60) from one
    address in all; a /64 network of IPv6 counts as one address. `401` does not tell whether the name is known. A person
    can have twenty logins at a time; a further one ends the oldest. A new password ends all of them.
    """
    if logins is None:
        return problem(problems.NOTHING_TO_LOG_IN_TO, NOTHING_TO_LOG_IN_TO)
    headers = headers_of(request.scope)
    refusal = media_type_refusal(headers)
    if refusal is not None:
        return refusal
    body = members_of(decode_json(await read_body(request.receive, headers)), models.LoginBody.model_fields)
    login = await begin_by_password(logins, body, request)
    given = {
        "key": login.key.text,
        "id": login.key.id,
        "principal": login.principal,
        "tenant": login.tenant,
        "expires_at": instant(login.expires_us),
    }
    return BytesResponse(orjson.dumps(given), status=201, headers=[NO_STORE])


@guarded.delete(
    "/login",
    status_code=204,
    summary="Log out: revoke the key of this request",
    response_class=Reply,
    response_description="This node rejects the key from now on, and the other nodes do within a second.",
    responses=problems_of(BY_ERROR[errors.EntryConflictError], problems.NOTHING_TO_LOG_IN_TO, _AWAY),
    openapi_extra=knows(),
)
async def log_out(logins: LoginsOrNone, asker: WhoAsks) -> Reply:
    """Only keys that a login created can be ended here. Any other key is answered with `409`; revoke it instead."""
    if logins is None or asker.caller is None:
        return problem(problems.NOTHING_TO_LOG_IN_TO, NOTHING_TO_LOG_IN_TO)
    await logins.end(asker.caller)
    return Reply(status_code=204)


async def begin_by_password(logins: Logins, body: Mapping[str, JsonValue], request: Request) -> IssuedLogin:
    """The login of the person whom the body names; the errors of `Logins.begin`."""
    tenant = None if body.get("tenant") is None else text_of(body, "tenant")
    return await logins.begin(text_of(body, "name"), text_of(body, "password"), tenant, address_of(request))


def address_of(request: Request) -> str:
    """The network that the request comes from, as attempts are counted."""
    return network_of(request.client.host) if request.client is not None else ""


def members_of(body: JsonValue, allowed: Collection[str]) -> Mapping[str, JsonValue]:
    """The members of a body that has no others than these; InvalidInputError."""
    if not isinstance(body, dict):
        raise InvalidInputError("body", f"is no object; allowed: {', '.join(allowed)}")
    for name in body:
        if name not in allowed:
            raise InvalidInputError(ascii(name[:64])[1:-1], f"is unknown; allowed: {', '.join(allowed)}")
    return body


def text_of(body: Mapping[str, JsonValue], field: str) -> str:
    """A member, never repeated in what is said about it; InvalidInputError."""
    found = body.get(field)
    if not isinstance(found, str) or not 0 < len(found) <= MAX_NAME:
        raise InvalidInputError(field, f"is needed, as a text of 1 to {MAX_NAME} characters")
    return found
