"""Health and metrics on a port of their own, for probes and scrapers of the inside: nobody is asked who they are."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi import Response as Reply

from app.api import health, problems
from app.api.dependencies import Node
from app.api.ports import Ports
from app.api.routers import PublicRouter, routes_of

router = PublicRouter()


class Operations(FastAPI):
    """Answers `/healthz`, `/readyz` and `/metrics` of a node, whose other application owns its life."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(
            openapi_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},
        )
        self.ports = ports
        self.router.routes += routes_of((health.probes, router))
        problems.install(self, ports.node.counters)


@router.get("/metrics")
async def metrics(request: Request, node: Node) -> Reply:
    """All metrics of the node."""
    return await health.exposition(request, node)
