"""Shares of work among the live nodes, by rendezvous hashing: no node asks another, and an overlap is harmless."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.identifiers import PARTITIONS

SLICE: Final = 16
"""Partitions of one call: commands wait behind it, at this node and in the store."""


def falls_to(node_id: str, live: Sequence[str], name: str) -> bool:
    """True if something of this name falls to this node."""

    def weight(node: str) -> bytes:
        return blake2b(f"{name}:{node}".encode(), digest_size=8).digest()

    return max(sorted({node_id, *live}), key=weight) == node_id


def share_of(node_id: str, live: Sequence[str]) -> list[int]:
    """The partitions that fall to this node."""
    return [*_share_of(node_id, tuple(live))]


@lru_cache(maxsize=64)  # sweeper, drainer and deliverer ask the same, and nodes come back
def _share_of(node_id: str, live: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(one for one in range(PARTITIONS) if falls_to(node_id, live, str(one)))
