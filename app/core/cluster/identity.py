"""The identity that a node which is alone on its store keeps across restarts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """`node_id` finds the open commands of earlier starts; `session` is the part of the client id that nobody guesses.

    Under the same client id, the broker hands over what devices said while the node was away.
    """

    node_id: str
    session: str = field(repr=False)
