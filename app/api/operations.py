"""Health and metrics on a port of their own, for probes and scrapers of the inside: nobody is asked who they are."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi import Response as Reply

from app.api import health, problems
from app.api.dependencies import Node
from app.api.ports import Ports

router = APIRouter()


class Operations(FastAPI):
    """Answers `/healthz`, `/readyz` and `/metrics` of a node, whose other application owns its life."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(
            openapi_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},
        )
        self.ports = ports
        self.include_router(health.probes)
        self.include_router(router)
        problems.install(self, ports.node.counters, lambda: iter((*health.probes.routes, *router.routes)))


@router.get("/metrics")
async def metrics(request: Request, node: Node) -> Reply:
    """All metrics of the node."""
    return await health.exposition(request, node)
