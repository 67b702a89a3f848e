"""Shares of work among the live nodes, by rendezvous hashing: no node asks another, and an overlap is harmless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.identifiers import PARTITIONS

SLICE: Final = 64
"""Partitions of one call: commands wait behind it, at this node and in the store."""


@dataclass(frozen=True, slots=True)
class PartitionShares:
    """The partitions as one node sees them."""

    own: tuple[int, ...]
    """The partitions that fall to it."""
    second: tuple[int, ...]
    """The partitions that would fall to it if the node that they fall to were gone."""
    others: tuple[int, ...]
    """All other ones, which `others_each` nodes have in common."""
    others_each: int


def falls_to(node_id: str, live: Sequence[str], name: str) -> bool:
    """True if something of this name falls to this node."""
    return _order(node_id, live, name)[0] == node_id


def share_of(node_id: str, live: Sequence[str]) -> tuple[int, ...]:
    """The partitions that fall to this node."""
    return shares_of(node_id, live).own


def shares_of(node_id: str, live: Sequence[str]) -> PartitionShares:
    """The partitions by how near they are to this node."""
    return _shares_of(node_id, tuple(live))


def _order(node_id: str, live: Sequence[str], name: str) -> list[str]:
    """The nodes to which something of this name falls, one after the other."""

    def weight(node: str) -> bytes:
        return blake2b(f"{name}:{node}".encode(), digest_size=8).digest()

    return sorted(sorted({node_id, *live}), key=weight, reverse=True)


@lru_cache(maxsize=64)  # sweeper, drainer and deliverer ask the same, and nodes come back
def _shares_of(node_id: str, live: tuple[str, ...]) -> PartitionShares:
    places = [_order(node_id, live, str(one)).index(node_id) for one in range(PARTITIONS)]
    return PartitionShares(
        own=tuple(one for one, place in enumerate(places) if place == 0),
        second=tuple(one for one, place in enumerate(places) if place == 1),
        others=tuple(one for one, place in enumerate(places) if place > 1),
        others_each=max(1, len({node_id, *live}) - 2),
    )
