from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.cluster.shares import SLICE, share_of, shares_of
from app.commands.deadlines.sweeper import COVER, GRACE, Sweeper
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import StoreUnavailableError
from app.runtime.system import SystemClock, new_charter
from app.store.commands import CommandWriter
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import Assembly, assemble, request


def test_every_partition_falls_to_exactly_one_node() -> None:
    live = ["n1", "n2", "n3"]
    shares = [share_of(node, live) for node in live]
    assert sorted(p for share in shares for p in share) == list(range(256))
    assert all(len(share) > 40 for share in shares)


def test_a_node_that_leaves_moves_only_its_own_partitions() -> None:
    before = set(share_of("n1", ["n1", "n2", "n3"]))
    after = set(share_of("n1", ["n1", "n2"]))
    assert before < after


async def at_once(_seconds: float) -> None:
    """No pause."""


def sweeper_of(
    assembly: Assembly,
    cluster: LocalCluster,
    node_id: str,
    *,
    store: CommandWriter | None = None,
    sleep: Callable[[float], Awaitable[None]] = at_once,
    shared: bool = True,
) -> Sweeper:
    return Sweeper(
        store=store or assembly.store,
        cluster=cluster,
        open_commands=assembly.members[0].open_commands,
        node_id=node_id,
        interval=1,
        shared=shared,
        counters=Counter(),
        sleep=sleep,
    )


CROWD = tuple(f"n{number}" for number in range(1, 10))


class Crowd(LocalCluster):
    """A cluster whose dead members still hold their leases."""

    async def nodes(self) -> Sequence[NodeInfo]:
        return [NodeInfo(node, "i", f"c{node}", 0) for node in CROWD]


async def test_F13_whoever_a_partition_falls_to_may_have_died_with_its_home_node() -> None:
    assembly = await assemble()
    invocation = await assembly.members[0].invoker.invoke(request(timeout=timedelta(seconds=1)), park=True)
    partition = int(invocation.command.id[:3])
    second = next(node for node in CROWD if partition in shares_of(node, CROWD).second)
    sweeper = sweeper_of(assembly, Crowd(new_charter()), second)
    assembly.clock.advance(1 + GRACE.total_seconds() + 0.01)
    await sweeper.sweep()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert not command.state.final
    assembly.clock.advance((COVER - GRACE).total_seconds())
    await sweeper.sweep()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert command.state is CommandState.TIMED_OUT


async def test_F13_a_dead_nodes_command_is_timed_out_after_the_grace() -> None:
    assembly = await assemble()
    invocation = await assembly.members[0].invoker.invoke(request(timeout=timedelta(seconds=1)), park=True)
    cluster = LocalCluster(new_charter())
    await cluster.join(NodeInfo("n2", "i", "c", 0))
    sweeper = sweeper_of(assembly, cluster, "n2")
    assembly.clock.advance(1.4)
    await sweeper.sweep()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert not command.state.final
    assembly.clock.advance(0.2)
    await sweeper.sweep()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert command.state is CommandState.TIMED_OUT


class Headless(Crowd):
    """A cluster that cannot say any more who lives, as without one of the primaries of a Redis Cluster."""

    away = False

    async def nodes(self) -> Sequence[NodeInfo]:
        if self.away:
            raise StoreUnavailableError("the store did not answer in time")
        return await super().nodes()


async def test_who_lives_may_be_unknown_while_partitions_can_be_swept() -> None:
    store, cluster = Recording(), Headless(new_charter())
    sweeper = sweeper_of(await assemble(), cluster, "n1", store=store)
    await sweeper.sweep()
    store.asked.clear()
    cluster.away = True
    await sweeper.sweep()
    visited = [partition for partitions in store.asked for partition in partitions]
    assert tuple(visited[: len(share_of("n1", CROWD))]) == share_of("n1", CROWD)


class Recording(MemoryStateStore):
    """A store that notes which partitions it is asked for at a time."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.asked: list[Sequence[int]] = []

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        self.asked.append(partitions)
        return await super().sweep(partitions, finisher, grace)


async def test_a_round_is_spread_over_the_interval_so_that_no_command_waits_behind_it() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store, cluster = Recording(), Crowd(new_charter())
    sweeper = sweeper_of(await assemble(), cluster, "n1", store=store, sleep=sleep)
    await sweeper.sweep()
    visited = [partition for partitions in store.asked for partition in partitions]
    assert max(map(len, store.asked)) <= SLICE
    share = share_of("n1", CROWD)
    assert tuple(visited[: len(share)]) == share
    assert len(pauses) == len(store.asked)
    assert sum(pauses) == pytest.approx(1.0)


async def test_a_partition_is_visited_three_times_in_a_round_however_many_nodes_there_are() -> None:
    rounds = len(CROWD) - 2
    visits: Counter[int] = Counter()
    assembly = await assemble()
    for node in CROWD:
        store = Recording()
        sweeper = sweeper_of(assembly, Crowd(new_charter()), node, store=store)
        shares = shares_of(node, CROWD)
        for _ in range(rounds):
            store.asked.clear()
            await sweeper.sweep()
            visited = [partition for partitions in store.asked for partition in partitions]
            assert {*shares.own, *shares.second} <= set(visited)
            visits.update(visited)
    assert visits == dict.fromkeys(range(256), 3 * rounds)


async def test_a_node_with_a_store_of_its_own_wakes_up_once_per_round() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store, cluster = Recording(), LocalCluster(new_charter())
    await cluster.join(NodeInfo("n1", "i", "c", 0))
    await sweeper_of(await assemble(), cluster, "n1", store=store, sleep=sleep, shared=False).sweep()
    assert sorted(partition for partitions in store.asked for partition in partitions) == list(range(256))
    assert max(map(len, store.asked)) <= SLICE
    assert [pause for pause in pauses if pause] == [1]
    assert len(pauses) == len(store.asked), "others run between two slices"
