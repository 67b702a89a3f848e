"""Seeds find every planted mistake."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from homing_rig.simulation.plan import plan_of
from homing_rig.simulation.suite import ran, simulate
from tests.rig.chaos.mutants import MUTANTS as OF_CHAOS
from tests.rig.simulation.mutants import MUTANTS, OF_ITS_OWN, planted


def assert_found(name: str, seeds: Iterable[int]) -> None:
    mutant, seen = MUTANTS[name], list[str]()
    with planted(mutant):
        for seed in seeds:
            found = ran(mutant.changed(plan_of(seed, mutant.commands))).breaches
            if any(one.startswith(mutant.rules) for one in found):
                return
            seen += found
    raise AssertionError(f"no seed below {mutant.within} found it, but only: {seen}")


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    """The seed that is written down finds it, or another one since draws have changed: then write that one down."""
    assert_found(name, dict.fromkeys((MUTANTS[name].known, *range(MUTANTS[name].within))))


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found_without_a_seed_that_is_known(name: str) -> None:
    """It takes many seeds, so it is not part of an ordinary run: `scripts/mutants`."""
    assert_found(name, range(MUTANTS[name].within))


def test_more_than_ten_mutants_are_its_own() -> None:
    own = {one.plant.__name__ for one in OF_ITS_OWN}
    assert own.isdisjoint(OF_CHAOS)
    assert len(own) == 26


def test_what_was_planted_is_gone_afterwards() -> None:
    digest = simulate(3, 30).digest
    for mutant in MUTANTS.values():
        with planted(mutant):
            pass
    assert simulate(3, 30).digest == digest
