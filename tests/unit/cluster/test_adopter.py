from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.cluster.adopter import GRACE, Adopter
from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.core.cluster.notices import SessionNotice, Word
from app.core.errors import BrokerUnavailableError, StoreUnavailableError
from app.runtime.system import new_charter
from tests.waiting import eventually

NO_GRACE = timedelta()
MOST_LOST = 2


class Orphans(LocalCluster):
    """A cluster in which these incarnations died, and others hold their leases."""

    def __init__(self, *names: str, alive: Sequence[str] = ()) -> None:
        super().__init__(new_charter())
        self.left = [NodeInfo(name, f"i-{name}", name, 0) for name in names]
        self.alive = [NodeInfo(name, f"i-{name}", name, 0) for name in alive]
        self.claims: list[tuple[str, bool]] = []
        self.forgotten: list[str] = []
        self.knows_all = False
        self.away = 0

    async def nodes(self) -> Sequence[NodeInfo]:
        return tuple(self.alive)

    async def orphans(self) -> Sequence[NodeInfo]:
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("away")
        return tuple(self.left)

    async def note_forgotten(self, lost: NodeInfo) -> bool:
        self.forgotten.append(lost.client_id)
        return not self.knows_all

    async def claim(self, orphan: NodeInfo, right: timedelta, *, lost: bool = False) -> bool:
        self.claims.append((orphan.node_id, lost))
        return True

    async def adopted(self, orphan: NodeInfo) -> None:
        self.left = [one for one in self.left if one != orphan]


class Rig:
    def __init__(self, cluster: Orphans, grace: timedelta = GRACE, interval: float = 1) -> None:
        self.cluster = cluster
        self.counters: Counter[str] = Counter()
        self.drained: list[str] = []
        self.connected = True
        self.gone: list[str] = []
        self.died: list[str] = []
        self.adopter = Adopter(
            cluster=cluster,
            drain=self.drain,
            interval=interval,
            counters=self.counters,
            connected=lambda: self.connected,
            named=named,
            gone=self.gone.append,
            died=self.died.append,
            grace=grace,
            most_lost=MOST_LOST,
        )

    async def drain(self, orphan: NodeInfo, _idle: timedelta) -> int:
        if orphan.node_id == "stuck":
            raise BrokerUnavailableError("refused")
        self.drained.append(orphan.node_id)
        return 2


def lost(name: str, secret: str = "") -> SessionNotice:
    return SessionNotice(Word.LOST, name, f"i-{name}", secret=secret)


def named(notice: SessionNotice) -> NodeInfo | None:
    return NodeInfo(notice.node_id, notice.incarnation, notice.secret, 0) if notice.secret else None


async def test_F50_a_session_that_cannot_be_drained_holds_up_no_other() -> None:
    rig = Rig(Orphans("a", "stuck", "b", "c"))
    await rig.adopter.look()
    assert len(rig.cluster.left) == 4  # not at first sight
    assert rig.adopter.busy
    await rig.adopter.look()
    assert [orphan.node_id for orphan in rig.cluster.left] == ["stuck"]
    assert (rig.counters["adoption.sessions"], rig.counters["adoption.responses"]) == (3, 6)
    assert sorted(rig.gone) == ["a", "b", "c", "stuck"]
    assert rig.died == [], "they may have been dead for days"


@pytest.mark.parametrize("lease", ["held", "gone"])
async def test_F50_a_session_that_the_broker_says_is_lost_is_adopted_at_once(lease: str) -> None:
    rig = Rig(Orphans(alive=["n2"]) if lease == "held" else Orphans("n2"), NO_GRACE)
    rig.adopter.heard(lost("n2"))
    assert rig.adopter.busy
    await eventually(lambda: rig.drained == ["n2"])
    assert rig.cluster.claims[0] == ("n2", True)
    assert rig.gone == rig.died == ["n2"]
    await eventually(lambda: not rig.adopter.busy)


async def test_a_session_that_is_back_within_the_grace_is_left_alone() -> None:
    rig = Rig(Orphans(alive=["n2"]))
    rig.adopter.heard(lost("n2"))
    rig.adopter.heard(SessionNotice(Word.BACK, "n2", "i-n2"))
    await asyncio.sleep(0)
    assert not rig.adopter.busy
    assert rig.cluster.claims == []


async def test_a_session_that_its_node_has_left_is_adopted_at_once_and_once() -> None:
    rig = Rig(Orphans(alive=["n2"]))
    rig.adopter.heard(SessionNotice(Word.LEFT, "n2", "i-n2"))
    rig.adopter.heard(lost("n2"))  # the will of the connection that it broke
    await eventually(lambda: rig.drained == ["n2"])
    await eventually(lambda: not rig.adopter.busy)
    assert (rig.cluster.claims[0], rig.gone, rig.died) == (("n2", True), ["n2"], ["n2"])


@pytest.mark.parametrize("word", [Word.WHO, Word.HERE, Word.STORE, Word.STORED])
async def test_words_that_tell_of_no_session_end_none(word: Word) -> None:
    rig = Rig(Orphans(alive=["n2"]), NO_GRACE)
    rig.adopter.heard(SessionNotice(word, "n2", "i-n2"))
    assert not rig.adopter.busy


async def test_who_has_lost_the_broker_as_well_takes_nobodys_session() -> None:
    rig = Rig(Orphans(alive=["n2"]), NO_GRACE)
    rig.connected = False
    rig.adopter.heard(lost("n2"))
    await eventually(lambda: not rig.adopter.busy)
    assert rig.cluster.claims == []
    assert rig.gone == []


async def test_what_is_told_of_unknown_sessions_is_bounded() -> None:
    rig = Rig(Orphans(), NO_GRACE)
    for number in range(MOST_LOST + 3):
        rig.adopter.heard(lost(f"x{number}"))
    assert rig.counters["drop.notice"] == 3
    await eventually(lambda: not rig.adopter.busy)


async def test_ones_own_session_that_somebody_took_over_is_adopted_without_waiting() -> None:
    rig = Rig(Orphans("n1"))
    rig.adopter.left_behind(rig.cluster.left[0])
    await eventually(lambda: rig.drained == ["n1"])
    assert rig.cluster.claims[0] == ("n1", False)


async def test_a_session_that_the_store_has_forgotten_is_adopted_by_the_name_that_the_broker_tells() -> None:
    rig = Rig(Orphans(), NO_GRACE)
    rig.adopter.heard(lost("n2", "client-of-n2"))
    await eventually(lambda: rig.drained == ["n2"])
    assert rig.cluster.forgotten == ["client-of-n2"]
    assert rig.cluster.claims[0] == ("n2", True)
    assert rig.counters["adoption.forgotten"] == 1


async def test_a_session_that_somebody_else_has_adopted_is_left_alone() -> None:
    rig = Rig(Orphans(), NO_GRACE)
    rig.cluster.knows_all = True
    rig.adopter.heard(lost("n2", "client-of-n2"))
    rig.adopter.heard(lost("n3"))  # of a node of 0.2.0, which says no name
    await eventually(lambda: not rig.adopter.busy)
    assert (rig.cluster.forgotten, rig.cluster.claims, rig.drained) == (["client-of-n2"], [], [])


async def test_a_loss_of_which_the_broker_tells_while_the_store_is_away_is_acted_upon_when_that_is_back() -> None:
    rig = Rig(Orphans(), NO_GRACE, interval=0.01)
    rig.cluster.away = 3
    rig.adopter.heard(lost("n2", "client-of-n2"))
    await eventually(lambda: rig.drained == ["n2"])
