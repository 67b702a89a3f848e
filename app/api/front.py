"""The pages for a person or a program who knows only the address: an index, and pages about the API.

Scripts and styles of the pages are part of the package: nodes are often where no browser reaches the internet, and
nobody else has to know who looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app import __version__
from app.api import problems
from app.api.dependencies import NodePorts
from app.api.http import BytesResponse, headers_of
from app.api.media_types import accepts
from app.api.problems import problem
from app.api.routers import PublicRouter
from app.api.v1 import node_models as models

LINKS: Final[Mapping[str, str]] = {
    "console": "/console/",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "commands": "/v1/commands",
    "devices": "/v1/devices",
    "events": "/v1/events",
    "webhooks": "/v1/webhooks",
    "fleets": "/v1/fleet-runs",
    "schedules": "/v1/schedules",
    "profiles": "/v1/profiles",
    "nodes": "/v1/nodes",
    "health": "/readyz",
    "metrics": "/metrics",
}
ASSETS: Final = Path(__file__).parent / "assets"
_TYPES: Final[Mapping[str, bytes]] = {
    "docs.js": b"text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
    "favicon.png": b"image/png",
}
_HTML: Final = b"text/html; charset=utf-8"
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI writes styles into the document."""
_PAGE_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
_KEPT: Final = (b"cache-control", b"max-age=3600")

router = PublicRouter()


@router.get(
    "/",
    tags=["index"],
    summary="List the entry points of the API",
    response_model=models.Index,
    response_description="The entry points that this node has.",
)
async def read_index(request: Request, ports: NodePorts) -> Reply:
    """A browser, whose `Accept` names `text/html` first, is sent on to the console."""
    first = headers_of(request.scope).get(b"accept", b"").partition(b",")[0]
    if accepts(first, b"text/html"):
        return Reply(status_code=303, headers={"location": "console/", "vary": "accept"})
    root = request.scope.get("root_path", "")
    planes = {"devices": ports.directory, "webhooks": ports.webhooks, "events": ports.events}
    there = {name: path for name, path in LINKS.items() if planes.get(name, ports) is not None}
    links = {name: f"{root}{path}" for name, path in there.items()}
    body = {"name": "homing", "version": __version__, "node_id": ports.node.member.info.node_id, "links": links}
    return BytesResponse(orjson.dumps(body))


@router.get("/docs", include_in_schema=False)
async def docs() -> Reply:
    """Swagger UI."""
    return _page("docs.html")


@router.get("/assets/{name}", include_in_schema=False)
async def asset(name: str) -> Reply:
    """A file of these pages."""
    if name not in _TYPES:
        return problem(problems.NOT_FOUND, "no such path; /openapi.json lists all of them")
    return BytesResponse(_read(name), content_type=_TYPES[name], headers=[_KEPT, *_PAGE_HEADERS])


def _page(name: str) -> Reply:
    return BytesResponse(_read(name), content_type=_HTML, headers=_PAGE_HEADERS)


@cache
def _read(name: str) -> bytes:
    return (ASSETS / name).read_bytes()
