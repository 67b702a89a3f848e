"""Contract tests find every mistake planted on the way to several servers. Slow: `scripts/mutants`."""

from __future__ import annotations

import pytest

from tests.rig.planting import assert_found
from tests.rig.router.mutants import MUTANTS, VARIABLE

HANGS_SECONDS = 60
"""Within this time each of these tests is good on a machine that is busy: what hangs is found."""


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    assert_found("tests.rig.router.mutants", VARIABLE, name, MUTANTS[name].test, seconds=HANGS_SECONDS)
