"""Health and metrics of this node over HTTP; paths without a version, as probes and scrapers know them."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.api import problems
from app.api.dependencies import Node, WhoAsks
from app.api.http import BytesResponse, headers_of
from app.api.openapi import acts, problems_of
from app.api.ports import ThisNode
from app.api.problems import problem
from app.api.routers import PublicRouter
from app.api.v1 import node_models as models
from app.core.access.rules import Action
from app.node import NodeState, is_well

ALIVE: Final = b'{"status":"ok"}'
NOT_READY: Final = "not_ready"
"""The state of a node that would serve if all it needs were there."""
_TEXT: Final[dict[str, Any]] = {"schema": {"type": "string"}}

probes = PublicRouter(tags=["health"])
router = PublicRouter(tags=["health"])


@probes.get("/healthz", summary="Liveness", response_model=models.Alive, response_description="The process is running.")
async def read_liveness() -> Reply:  # noqa: D103 - that this answer is given is all it says
    return BytesResponse(ALIVE)


@probes.get(
    "/readyz",
    summary="Readiness: tells load balancers whether to use this node",
    response_model=models.Ready,
    response_description="The node can serve.",
    responses=problems_of(problems.NOT_READY, public=True),
)
async def read_readiness(node: Node) -> Reply:  # noqa: D103 - its summary says it
    health = await node.member.health()
    if health.ready:
        return BytesResponse(orjson.dumps({"state": health.state, "checks": health.checks}))
    away = [f"{name}: {said}" for name, said in health.checks.items() if not is_well(said)]
    detail = "; ".join(away) or f"this node is {health.state}"
    state = NOT_READY if health.state is NodeState.READY else health.state
    return problem(problems.NOT_READY, detail, state=state, checks=health.checks)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Reply,
    response_description="All metrics of this node.",
    responses={
        200: {"content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT}},
        **problems_of(),
    },
    openapi_extra=acts(Action.METRICS),
)
async def read_metrics(request: Request, node: Node, asker: WhoAsks) -> Reply:
    """Returns the Prometheus text format, or OpenMetrics if `Accept` names `application/openmetrics-text`.

    A node that is not ready answers, too. With HOMING_OPS_PORT, metrics are served on that port without a key.
    """
    asker.check(Action.METRICS)
    return await exposition(request, node)


async def exposition(request: Request, node: ThisNode) -> Reply:
    """All metrics of the node, in the format that is asked for."""
    accept = headers_of(request.scope).get(b"accept", b"").decode("latin-1")
    text, content_type = node.exposition.render(accept, await node.member.health())
    return BytesResponse(text, content_type=content_type.encode())
