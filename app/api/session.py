"""Begins and ends sessions of the console: a login whose key only the browser keeps, out of reach of scripts."""

from __future__ import annotations

from typing import Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.access.login.logins import IssuedLogin, Logins
from app.access.origin import ASKING
from app.access.ports import Access
from app.api import problems
from app.api.credentials import ended_cookies, is_of_console, is_secure, session_cookie, session_of
from app.api.dependencies import LoginsOrNone, NodePorts
from app.api.http import NO_STORE, BytesResponse, asking, headers_of, read_body
from app.api.media_types import media_type_refusal
from app.api.problems import problem
from app.api.representation import instant
from app.api.routers import PublicRouter
from app.api.v1.login import NOTHING_TO_LOG_IN_TO, address_of, begin_by_password, members_of, text_of
from app.core.errors import EntryConflictError, UnauthenticatedError
from app.core.payload import decode_json

_FOREIGN: Final = "sessions are for the console alone, which sends Homing-Request: console; programs use /v1/login"
_BY_PASSWORD: Final = ("name", "password", "tenant")
_BY_KEY: Final = ("key",)

router = PublicRouter(prefix="/console", include_in_schema=False)
"""Programs have keys, and log in at `/v1/login`."""


@router.post("/session", status_code=201)
async def begin_session(request: Request, logins: LoginsOrNone, ports: NodePorts) -> Reply:
    """Logs in by name and password, or by a key; gives the key of the login as a cookie, and shows it to nobody."""
    headers = headers_of(request.scope)
    if not is_of_console(headers):
        return problem(problems.ORIGIN_NOT_ALLOWED, _FOREIGN)
    secret = ports.access.secret
    if logins is None or secret is None:
        return problem(problems.NOTHING_TO_LOG_IN_TO, NOTHING_TO_LOG_IN_TO)
    refusal = media_type_refusal(headers)
    if refusal is not None:
        return refusal
    login = await _begun(request, logins, ports.access)
    given = {"principal": login.principal, "tenant": login.tenant, "expires_at": instant(login.expires_us)}
    cookie = session_cookie(login.key.text, secret, secure=is_secure(headers))
    return BytesResponse(orjson.dumps(given), status=201, headers=[NO_STORE, cookie])


@router.delete("/session", status_code=204)
async def end_session(request: Request, logins: LoginsOrNone, ports: NodePorts) -> Reply:
    """Logs out, on all nodes. A session that counts no more is taken away as well."""
    headers = headers_of(request.scope)
    if not is_of_console(headers):
        return problem(problems.ORIGIN_NOT_ALLOWED, _FOREIGN)
    secret = ports.access.secret
    if logins is None or secret is None:
        return problem(problems.NOTHING_TO_LOG_IN_TO, NOTHING_TO_LOG_IN_TO)
    try:
        caller = ports.access.caller(session_of(headers, ports.access))
        ASKING.set(asking(caller, request.scope, headers))
        if caller is not None:
            await logins.end(caller)
    except (UnauthenticatedError, EntryConflictError):
        pass  # it has ended already, or somebody has put a key there that no login has given
    reply = Reply(status_code=204)
    reply.raw_headers.extend(ended_cookies(headers, secret))
    return reply


async def _begun(request: Request, logins: Logins, access: Access) -> IssuedLogin:
    headers = headers_of(request.scope)
    body = decode_json(await read_body(request.receive, headers))
    if not isinstance(body, dict) or "key" not in body:
        return await begin_by_password(logins, members_of(body, _BY_PASSWORD), request)
    members = members_of(body, _BY_KEY)
    caller = access.caller(b"Bearer " + text_of(members, "key").encode())
    ASKING.set(asking(caller, request.scope, headers))
    return await logins.begin_by_key(caller, address_of(request))
