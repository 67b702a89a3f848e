"""Begins sessions of the console at an OIDC issuer: the browser goes there, and comes back with a code for a token.

The session is that token, as it is that of a login's key otherwise (docs/adr/0142-people-log-in-at-their-issuer.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.api.credentials import Header, ended_pending_cookie, pending_cookie, pending_of, session_cookie
from app.api.dependencies import NodePorts
from app.api.http import NO_STORE, BytesResponse, headers_of
from app.api.ports import Ports
from app.api.problems import NOTHING_TO_LOG_IN_TO, problem
from app.api.routers import PublicRouter
from app.core.access.code_flow import LoginFault
from app.core.errors import UnauthenticatedError

if TYPE_CHECKING:
    from app.access.login.issuer_logins import IssuerLogins  # whose libraries are an extra

NO_ISSUER: Final = "this node sends nobody to an OIDC issuer: HOMING_OIDC_CLIENT_ID is not set"

router = PublicRouter(prefix="/console", include_in_schema=False)


@router.get("/session")
async def offered(ports: NodePorts) -> Reply:
    """Tells the page for logins at which issuer people can log in, if at one."""
    logins = ports.issuer_logins
    return BytesResponse(orjson.dumps({"issuer": None if logins is None else logins.client.host}), headers=[NO_STORE])


@router.get("/session/oidc")
async def begin(ports: NodePorts) -> Reply:
    """Sends the browser to the issuer."""
    logins, secret = ports.issuer_logins, ports.access.secret
    if logins is None or secret is None:
        return problem(NOTHING_TO_LOG_IN_TO, NO_ISSUER)
    begun = logins.begin()
    if isinstance(begun, LoginFault):
        return _back(logins, begun)
    url, login = begun
    return _redirect(url, [pending_cookie(login, secret, secure=_is_secure(logins))])


@router.get("/session/oidc/callback")
async def finish(request: Request, ports: NodePorts) -> Reply:
    """Makes a session of what the issuer has sent the browser back with; else the page says why there is none."""
    logins, secret = ports.issuer_logins, ports.access.secret
    if logins is None or secret is None:
        return problem(NOTHING_TO_LOG_IN_TO, NO_ISSUER)
    secure = _is_secure(logins)
    login = pending_of(headers_of(request.scope), secret, secure=secure)
    token = await logins.finish(request.query_params, login)
    ended = ended_pending_cookie(secret, secure=secure)
    if isinstance(token, LoginFault) or not _counts(token, logins, ports):
        return _back(logins, token if isinstance(token, LoginFault) else LoginFault.REFUSED, ended)
    return _redirect(logins.client.console_url, [ended, session_cookie(token, secret, secure=secure)])


def _counts(token: str, logins: IssuerLogins, ports: Ports) -> bool:
    try:
        ports.access.caller(b"Bearer " + token.encode())
    except UnauthenticatedError:
        logins.failed(LoginFault.REFUSED)
        return False
    logins.accepted()
    return True


def _is_secure(logins: IssuerLogins) -> bool:
    return logins.client.console_url.startswith("https:")


def _back(logins: IssuerLogins, fault: LoginFault, *headers: Header) -> Reply:
    return _redirect(f"{logins.client.console_url}?login={fault}", headers)


def _redirect(url: str, headers: Sequence[Header]) -> Reply:
    """303, so that whatever was asked is not sent there."""
    reply = Reply(status_code=303)
    reply.raw_headers.extend([(b"location", url.encode()), NO_STORE, *headers])
    return reply
