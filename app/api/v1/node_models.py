"""Nodes, as they describe themselves: the cluster, the index of the API, health."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from app.api.v1.command_models import Instant, SchemaModel
from app.core.commands.command import IfOffline


class Node(SchemaModel):
    """A live node, as its lease describes it."""

    node_id: str
    incarnation: Annotated[str, Field(description="The id of this start of the node; each start has a new one.")]
    started_at: Instant
    self: Annotated[bool, Field(description="True for the node that answers.")]


class Queue(SchemaModel):
    """The size and bound of a queue."""

    size: int
    bound: int


class Self(SchemaModel):
    """The node that answers."""

    state: str
    pending: Annotated[int, Field(description="The number of open commands whose home node this is.")]
    waiters: Annotated[int, Field(description="The number of callers that are waiting on this node.")]
    queues: Annotated[dict[str, Queue], Field(description="The size and bound of each queue.")]
    if_offline: Annotated[
        dict[str, IfOffline],
        Field(description="For each profile, what a command does by default if nobody is subscribed."),
    ]
    counters: Annotated[dict[str, int], Field(description="Counters since the node's start, under stable names.")]


class Nodes(SchemaModel):
    """The cluster as this node sees it."""

    nodes: list[Node]
    self: Self

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "nodes": [
                        {
                            "node_id": "node-a",
                            "incarnation": "01JC8ZQ5M7W3T9K2V4X6Y8B0D1",
                            "started_at": "2026-03-01T07:59:00.000Z",
                            "self": True,
                        }
                    ],
                    "self": {
                        "state": "ready",
                        "pending": 0,
                        "waiters": 0,
                        "queues": {"pending": {"size": 0, "bound": 20000}},
                        "if_offline": {"dji": "fail", "homing": "fail"},
                        "counters": {"response.local": 12},
                    },
                }
            ]
        }
    )


class Index(SchemaModel):
    """The name and version of the node, and the entry points of the API."""

    name: Annotated[str, Field(examples=["homing"])]
    version: str
    node_id: str
    links: Annotated[dict[str, str], Field(examples=[{"docs": "/docs", "commands": "/v1/commands"}])]


class Alive(SchemaModel):
    """The process is running."""

    status: Annotated[str, Field(examples=["ok"])]


class Ready(SchemaModel):
    """The state of the node and of each part that it depends on."""

    state: Annotated[str, Field(examples=["ready"])]
    checks: Annotated[
        dict[str, str],
        Field(
            description="The result of each check: `ok`, `ok, but` with a warning, or what is wrong.",
            examples=[{"store": "ok", "mqtt": "ok", "cluster": "ok"}],
        ),
    ]
