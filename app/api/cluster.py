"""The cluster and the health of this node over HTTP."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from app.api import problems
from app.api.http import BytesResponse, headers_of
from app.api.problems import problem
from app.api.representation import instant
from app.cluster.base import NodeInfo
from app.metrics import Exposition
from app.node import Node

ALIVE: Final = b'{"status":"ok"}'


class ClusterApi:
    """The endpoints."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._metrics = Exposition(node)

    async def nodes(self, _request: Request) -> Response:
        """`GET /v1/nodes`."""
        node = self._node
        this = {
            "state": node.state,
            "pending": node.registry.pending_count,
            "waiters": node.registry.waiter_count,
            "queues": {name: fill._asdict() for name, fill in sorted(node.queues().items())},
            "counters": dict(sorted(node.counters.items())),
        }
        return BytesResponse(orjson.dumps({"nodes": [self._members(one) for one in await node.nodes()], "self": this}))

    async def alive(self, _request: Request) -> Response:
        """`GET /healthz`: that this answer is given is all it says."""
        return BytesResponse(ALIVE)

    async def ready(self, _request: Request) -> Response:
        """`GET /readyz`."""
        health = await self._node.health()
        if health.ready:
            return BytesResponse(orjson.dumps({"state": health.state, "checks": health.checks}))
        away = [f"{name}: {said}" for name, said in health.checks.items() if said != "ok"]
        detail = "; ".join(away) or f"this node is {health.state}"
        return problem(problems.NOT_READY, detail, state=health.state, checks=health.checks)

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`: also of a node that is not ready."""
        accept = headers_of(request).get(b"accept", b"").decode("latin-1")
        text, content_type = self._metrics.render(accept, await self._node.health())
        return BytesResponse(text, content_type=content_type.encode())

    def _members(self, one: NodeInfo) -> dict[str, Any]:
        return {
            "node_id": one.node_id,
            "incarnation": one.incarnation,
            "client_id": one.client_id,
            "started_at": instant(round(one.started_at * 1_000_000)),
            "self": one.incarnation == self._node.info.incarnation,
        }
