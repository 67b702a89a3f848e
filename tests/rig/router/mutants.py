"""The way to several servers of Redis with one mistake each: `ROUTER_MUTANT=NAME pytest -p tests.rig.router.mutants`.

Each names a contract test that has to fail with it.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, Final

from tests.rig.planting import TestedMutant, by_name, plant_named, product_class

VARIABLE: Final = "ROUTER_MUTANT"

_ROUTER: Final = "app.store.redis.driver.router"


def no_guard() -> None:
    """Scripts begin in a slot that moves: their guard is a key of which nobody asks."""
    import_module(_ROUTER).guard_of = lambda key: key  # type: ignore[attr-defined]


def moved_stays() -> None:
    """A call that was told MOVED goes into the queue from which it came."""

    def stay(self: Any, place: Any, call: Any, _error: Any) -> None:
        self._counters["store.moved"] += 1
        self._member(place).queue.add(call)

    product_class(f"{_ROUTER}.SlotRouter")._moved = stay


def map_never_read_again() -> None:
    """The first map of slots is kept."""
    watch = product_class("app.store.redis.driver.topology.SlotWatch")
    look = watch._look

    async def once(self: Any) -> None:
        if self.slots is None:
            await look(self)

    watch._look = once
    watch.moved = lambda _self, _slot, _place: None


def parts_in_order_of_arrival() -> None:
    """The replies of a pack are joined as they come from the primaries."""

    async def gathered(*waiting: Any) -> list[Any]:
        return [await one for one in asyncio.as_completed([asyncio.ensure_future(two) for two in reversed(waiting)])]

    found = import_module(_ROUTER)
    found.asyncio = _Asyncio(gathered)  # type: ignore[attr-defined]


class _Asyncio:
    """The module, with another `gather`."""

    def __init__(self, gather: Any) -> None:
        self.gather = gather

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def short_wait_is_enough() -> None:
    """A batch that too few replicas have counts as acknowledged."""
    wait = product_class("app.store.redis.driver.replicas.ReplicaWait")
    told = wait.told

    def content(self: Any, count: int) -> bool:
        told(self, count)
        return True

    wait.told = content


def any_sentinel_is_believed() -> None:
    """The Sentinel counts whose knowledge is the oldest."""
    import_module("app.store.redis.driver.sentinel").max = min  # type: ignore[attr-defined]


def deaf_to_sentinels() -> None:
    """Connections stay where they were made, until they break."""

    async def look(_self: Any) -> None:
        pass

    product_class("app.store.redis.driver.sentinel.SentinelWatch")._look = look


def replica_is_taken() -> None:
    """Nobody asks a server whether it is a primary."""

    async def role(_connection: Any) -> bytes:
        return b"master"

    import_module("app.store.redis.driver.sentinel")._role = role  # type: ignore[attr-defined]


def forgotten_is_not_told() -> None:
    """A shard that has forgotten what readers have got goes on as if it had not."""

    async def agreed(_self: Any, _shard: Any, _known: Any, head: Any) -> Any:
        return head

    product_class("app.store.redis.events.ends.ShardEnds").agreed = agreed


MUTANTS: Final = by_name(
    TestedMutant(
        no_guard, "contract/test_sharded.py::test_F38_a_script_never_begins_in_a_slot_that_moves_and_goes_on_behind_it"
    ),
    TestedMutant(moved_stays, "contract/test_sharded.py::test_slots_move_there_and_back_under_writers"),
    TestedMutant(
        map_never_read_again,
        "contract/test_sharded.py::test_F28_a_primary_is_killed_and_nothing_is_lost_that_a_replica_acknowledged",
    ),
    TestedMutant(parts_in_order_of_arrival, "contract/test_sharded.py::test_slots_move_there_and_back_under_writers"),
    TestedMutant(
        short_wait_is_enough,
        "contract/test_wait_replicas.py::test_F28_a_write_that_no_replica_has_is_not_acknowledged_and_is_when_one_has_it",
    ),
    TestedMutant(
        any_sentinel_is_believed,
        "contract/test_sentinel.py::test_the_one_of_two_primaries_counts_that_the_later_election_made",
    ),
    TestedMutant(
        deaf_to_sentinels, "contract/test_sentinel.py::test_F28_a_planned_switch_is_followed_at_once_under_load"
    ),
    TestedMutant(
        forgotten_is_not_told, "contract/test_lost_tail.py::test_who_follows_a_redis_whose_file_was_cut_is_told"
    ),
    TestedMutant(replica_is_taken, "contract/test_sentinel.py::test_a_replica_is_not_used_whoever_names_it"),
)

plant_named(VARIABLE, MUTANTS)
