"""Who asks, as this node knows them."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from fastapi import Response as Reply

from app.api import schemas
from app.api.dependencies import WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import knows, problems_of
from app.api.representation import instant

router = APIRouter(prefix="/v1", tags=["access"])


@router.get(
    "/me",
    summary="Who asks, and what they are",
    response_model=schemas.Me,
    response_description="Whoever the API key belongs to.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def me(asker: WhoAsks) -> Reply:
    """On a node that is open, everybody is told so."""
    found = asker.identity()
    if found is None:
        return BytesResponse(b'{"open":true}')
    expires_at = None if found.expires_us is None else instant(found.expires_us)
    return BytesResponse(
        orjson.dumps(
            {
                "open": False,
                "principal": found.principal,
                "tenant": found.tenant,
                "key": found.key,
                "expires_at": expires_at,
                "roles": found.roles,
            }
        )
    )
