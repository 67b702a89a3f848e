"""Queues with one mistake each: `QUEUE_MUTANT=NAME pytest -p tests.rig.queues.mutants`.

Each names a test that has to fail with it. Mistakes that kills of nodes find are in `tests/rig/chaos/mutants.py`.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from tests.rig.planting import TestedMutant, by_name, change, plant_named, product_class

VARIABLE: Final = "QUEUE_MUTANT"

_MACHINE: Final = "contract/test_queue_machine.py::test_random_histories_of_a_window"
_STEPS: Final = "contract/test_queue_steps.py"


def feed_without_compare() -> None:
    """A source is moved on wherever it was fed up to."""
    change("queues/feed", "if fed == ARGV[1] and size", "if size")


def settle_without_life() -> None:
    """A token of a window that began anew settles what is lent now."""
    change("queues/settle", "window.life == ARGV[3] and redis.call", "redis.call")


def no_isolation() -> None:
    """An event that has failed is lent with its neighbours, as often as it fails."""
    change("queues/take", "tried == 0 and cap or math.min(cap, tried == 1 and SUSPECTS or 1)", "cap")


def retries_come_back_unannounced() -> None:
    """A take does not say when a retry is due."""
    change("queues/take", "if short then", "if false then")


def dying_taken_off_before_the_letter() -> None:
    """An event that dies is taken off before its letter is appended."""
    burials = product_class("app.queues.burials.Burials")
    letters = burials._letters

    async def early(self: Any, shard: Any, dying: Any) -> Any:
        await self._store.buried(shard, dying[-1].number)
        return await letters(self, shard, dying)

    burials._letters = early


def hints_in_place_of_looks() -> None:
    """A consumer that waits looks where somebody hints, and nowhere else."""

    def look(self: Any, _now: float) -> None:
        self.look_at = inf

    product_class("app.queues.taker._TakerDesk").look = look


MUTANTS: Final = by_name(
    TestedMutant(feed_without_compare, _MACHINE),
    TestedMutant(
        settle_without_life,
        f"{_STEPS}::test_a_token_of_a_window_that_began_anew_settles_nothing",
    ),
    TestedMutant(no_isolation, f"{_STEPS}::test_what_failed_is_lent_with_few_others_and_then_alone"),
    TestedMutant(
        retries_come_back_unannounced,
        f"{_STEPS}::test_a_take_says_when_the_next_one_comes_back",
    ),
    TestedMutant(
        dying_taken_off_before_the_letter,
        "unit/queues/test_burials.py::test_what_dies_while_the_log_takes_nothing_is_buried_later",
    ),
    TestedMutant(hints_in_place_of_looks, "unit/queues/test_taker.py::test_what_nobody_hints_of_is_found_by_a_look"),
)

plant_named(VARIABLE, MUTANTS)
