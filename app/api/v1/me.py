"""The identity of the caller, as this node knows it."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.access.ports import LimitState
from app.api.credentials import session_of
from app.api.dependencies import NodePorts, WhoAsks
from app.api.http import BytesResponse, headers_of
from app.api.openapi import knows, problems_of
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import access_models as schemas
from app.core.access.rules import Concurrency, Limit

router = GuardedRouter(prefix="/v1", tags=["access"])


@router.get(
    "/me",
    summary="Read who the caller is",
    response_model=schemas.Me,
    response_description="The principal that the API key belongs to.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def read_me(request: Request, asker: WhoAsks, ports: NodePorts) -> Reply:
    """Returns the caller's principal, roles and limits. A node without authentication returns only `open: true`."""
    found = asker.identity()
    if found is None:
        return BytesResponse(b'{"open":true}')
    headers = headers_of(request.scope)
    session = b"authorization" not in headers and session_of(headers, ports.access) is not None
    expires_at = None if found.expires_us is None else instant(found.expires_us)
    return BytesResponse(
        orjson.dumps(
            {
                "open": False,
                "principal": found.principal,
                "tenant": found.tenant,
                "key": found.key,
                "expires_at": expires_at,
                "session": session,
                "roles": found.roles,
                "may": asker.rights(),
                "limits": [_told(one) for one in asker.limits()],
            }
        )
    )


def _told(state: LimitState) -> dict[str, Any]:
    limit = state.rule.limit
    told: dict[str, Any] = {"rule": state.rule.text, "name": state.rule.name, "share": round(state.share, 3)}
    if isinstance(limit, Concurrency):
        return told | {"per": limit.per, "concurrent": limit.most, "open": state.open, "left": state.left}
    if isinstance(limit, Limit):
        told |= {"per": limit.per, "count": limit.count, "seconds": limit.per_us // 1_000_000, "burst": limit.burst}
    return told | {"left": state.left}
