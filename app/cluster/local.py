"""A cluster of one, for the stores of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from app.cluster.directory import NodeInfo
from app.core.cluster.charter import Charter
from app.core.errors import NodeIdTakenError


class NoCopies:
    """Keeps nothing: there is nobody to share a copy with."""

    async def keep(self, version: int, at_us: int, copy: bytes, life: timedelta) -> None:
        return

    async def kept(self) -> tuple[int, int] | None:
        return None

    async def read(self) -> bytes | None:
        return None


class LocalCluster:
    """Knows itself only; there is nobody to wake. `remembers`: whether its store outlives the process."""

    def __init__(self, charter: Charter, *, remembers: bool = False) -> None:
        self.copies: Final = NoCopies()
        self._remembers = remembers
        self._node: NodeInfo | None = None
        self._charter = charter

    @property
    def listening(self) -> bool:
        return self._node is not None

    @property
    def leased(self) -> frozenset[str] | None:
        return None

    @property
    def remembers(self) -> bool:
        return self._remembers

    @property
    def strained(self) -> bool:
        return False

    async def charter(self) -> Charter:
        return self._charter

    async def found_anew(self, copied: Charter) -> Charter:
        return self._charter

    async def directory(self, own: str) -> str:
        return own

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        if self._node not in (None, node, replaces):
            raise NodeIdTakenError(node.node_id)
        self._node = node

    async def fenced(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def still_member(self, client_id: str) -> None:
        return

    async def drain(self) -> None:
        return

    async def leave(self, *, session_kept: bool = False) -> None:
        self._node = None

    async def nodes(self) -> Sequence[NodeInfo]:
        return [] if self._node is None else [self._node]

    async def all_know(self, feature: str) -> bool:
        return True

    async def knowing(self, feature: str) -> Sequence[str]:
        return [one.node_id for one in await self.nodes()]

    async def orphans(self) -> Sequence[NodeInfo]:
        return ()

    async def note_forgotten(self, lost: NodeInfo) -> bool:
        return False

    async def claim(self, orphan: NodeInfo, right: timedelta, *, lost: bool = False) -> bool:
        return False

    async def adopted(self, orphan: NodeInfo) -> None:
        return

    async def carry(self, node_id: str, secret: str) -> None:
        return

    async def note(self, node_id: str, what: bytes) -> None:
        return

    async def exchange(self, told: str) -> Sequence[str]:
        return ()
