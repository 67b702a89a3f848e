"""Tests find every mistake planted into queues. Slow: `scripts/mutants`."""

from __future__ import annotations

import pytest

from tests.rig.planting import assert_found
from tests.rig.queues.mutants import MUTANTS, VARIABLE


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    assert_found("tests.rig.queues.mutants", VARIABLE, name, MUTANTS[name].test, seconds=120)
