"""The cluster over HTTP."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response as Reply

from app.api.dependencies import Commands, Node, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import node_models as models
from app.cluster.directory import NodeInfo
from app.core import errors
from app.core.access.rules import Action

router = GuardedRouter(prefix="/v1", tags=["cluster"])


@router.get(
    "/nodes",
    summary="Read the state of the cluster as this node sees it",
    response_model=models.Nodes,
    response_description="The live nodes, with details of the node that answers.",
    responses=problems_of(BY_ERROR[errors.StoreUnavailableError]),
    openapi_extra=acts(Action.NODES),
)
async def list_nodes(node: Node, commands: Commands, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    asker.check(Action.NODES)
    this = {
        "state": node.member.state,
        "pending": len(commands.open_commands),
        "waiters": len(commands.waiters),
        "queues": {name: fill._asdict() for name, fill in sorted(node.fills().items())},
        "if_offline": dict(commands.if_offline()),
        "counters": dict(sorted(node.counters.items())),
    }
    own = node.member.info.incarnation
    return BytesResponse(orjson.dumps({"nodes": [_shown(one, own) for one in await node.nodes()], "self": this}))


def _shown(one: NodeInfo, own: str) -> dict[str, Any]:
    return {
        "node_id": one.node_id,
        "incarnation": one.incarnation,
        "started_at": instant(round(one.started_at * 1_000_000)),
        "self": one.incarnation == own,
    }
