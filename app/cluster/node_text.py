"""The text that a node is on record as: JSON, which nodes of this version and of the one before read."""

from __future__ import annotations

import json
from dataclasses import asdict

from app.cluster.directory import NodeInfo


def text_of(node: NodeInfo) -> str:
    """Return the text of a node, always the same one for the same node."""
    return json.dumps(asdict(node), sort_keys=True)


def node_of(text: str) -> NodeInfo:
    """Read what this version and the one before have written, and from a later one what it knows of it."""
    facts = json.loads(text)
    return NodeInfo(
        node_id=str(facts["node_id"]),
        incarnation=str(facts["incarnation"]),
        client_id=str(facts["client_id"]),
        started_at=float(facts["started_at"]),
        filters=tuple(str(one) for one in facts["filters"]),
    )
