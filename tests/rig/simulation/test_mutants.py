"""Seeds find every planted mistake. What takes more than a few is not part of an ordinary run: `scripts/mutants`."""

from __future__ import annotations

import pytest

from homing_rig.simulation.suite import simulate
from tests.rig.simulation.mutants import MUTANTS, planted

QUICK = [name for name, mutant in MUTANTS.items() if mutant.within <= 10]
"""Found within a few seeds: every run of the tests shows that the judge is awake."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.mutants) for name in MUTANTS]
)
def test_mutant_is_found(name: str) -> None:
    mutant, seen = MUTANTS[name], list[str]()
    with planted(mutant):
        for seed in range(mutant.within):
            found = simulate(seed, mutant.commands).breaches
            if any(one.startswith(mutant.rules) for one in found):
                return
            seen += found
    raise AssertionError(f"{mutant.within} seeds did not find it, but only: {seen}")


def test_what_was_planted_is_gone_afterwards() -> None:
    digest = simulate(3, 30).digest
    for name in QUICK:
        with planted(MUTANTS[name]):
            pass
    assert simulate(3, 30).digest == digest
