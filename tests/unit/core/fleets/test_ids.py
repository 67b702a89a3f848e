"""Ids of the commands of a run: the same on each node and in each release, as another driver goes on with them."""

from __future__ import annotations

import pytest

from app.core.fleets.ids import child_id
from app.core.identifiers import validate_command_id

RUN = "run-01JD0000000000000000000000"
CREATED_AT = 1764280000123456


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, "173-01KB3MGQKVTANZEJ5C3FM2E94A"),
        (7, "004-01KB3MGQKV4HVSV1SK2VWZF3S5"),
        (99_999, "042-01KB3MGQKV9VXHBQ5WV5R6ED9E"),
    ],
)
def test_the_id_of_a_target_is_that_of_earlier_releases(index: int, expected: str) -> None:
    found = child_id(RUN, index, 1, f"dock-{index}", CREATED_AT)
    assert found == expected
    assert validate_command_id(found) == expected


def test_each_target_and_attempt_has_its_own() -> None:
    assert (
        len({child_id(RUN, index, attempt, "dock-1", CREATED_AT) for index in range(50) for attempt in (1, 2)}) == 100
    )
