"""The pauses between two looks at what is waited for."""

from __future__ import annotations

from itertools import islice, pairwise

from homing_rig.patience import LONGEST_PAUSE, pauses


def test_they_become_longer_up_to_a_bound() -> None:
    found = list(islice(pauses(0.01), 200))
    assert found[0] == 0.01
    assert all(one < other for one, other in pairwise(found[:20]))
    assert max(found) == found[-1] == LONGEST_PAUSE


def test_one_that_is_longer_stays_as_it_is() -> None:
    assert set(islice(pauses(0.5), 50)) == {0.5}
