from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from app.callbacks.adopter import Adopter
from app.cluster.base import NodeInfo
from app.cluster.local import LocalCluster
from app.core.errors import BrokerUnavailableError


class Orphans(LocalCluster):
    """A cluster in which these incarnations died."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.left = [NodeInfo(name, "i", name, 0) for name in names]

    async def orphans(self) -> Sequence[NodeInfo]:
        return tuple(self.left)

    async def claim(self, orphan: NodeInfo, right: timedelta) -> bool:
        return True

    async def adopted(self, orphan: NodeInfo) -> None:
        self.left.remove(orphan)


async def test_F50_a_session_that_cannot_be_drained_holds_up_no_other() -> None:
    cluster = Orphans("a", "stuck", "b", "c")

    async def drain(orphan: NodeInfo, _idle: timedelta) -> int:
        if orphan.node_id == "stuck":
            raise BrokerUnavailableError("refused")
        return 2

    counters: Counter[str] = Counter()
    adopter = Adopter(cluster=cluster, drain=drain, interval=1, counters=counters)
    await adopter.look()
    assert len(cluster.left) == 4  # not at first sight
    await adopter.look()
    assert [orphan.node_id for orphan in cluster.left] == ["stuck"]
    assert (counters["adoption.sessions"], counters["adoption.responses"]) == (3, 6)
