"""Targets as they are asked for: what is shown of long lists, and how many there may be."""

from __future__ import annotations

import pytest

from app.core.errors import InvalidInputError
from app.core.fleets.targets import (
    MOST_TARGETS,
    SHOWN,
    TargetCandidate,
    as_shown,
    check_labels_of,
    check_size,
    read_selector,
)


def test_of_long_lists_the_beginning_is_shown_and_how_many_more_there_are() -> None:
    ids = [f"dock-{number}" for number in range(SHOWN + 7)]
    short = {"any": [{"labels": {"site": "north"}}, {"devices": ids[:SHOWN]}]}
    assert as_shown(short) == short
    asked = {"all": [{"not": {"devices": ids}}, {"profile": "dji"}]}
    assert as_shown(asked) == {"all": [{"not": {"devices": ids[:SHOWN], "more": 7}}, {"profile": "dji"}]}
    assert asked == {"all": [{"not": {"devices": ids}}, {"profile": "dji"}]}, "what was asked for stays"


def test_there_are_so_many_targets_at_most() -> None:
    check_size(MOST_TARGETS)
    with pytest.raises(InvalidInputError, match="are 100001 devices; allowed are 100000 in one run"):
        check_size(MOST_TARGETS + 1)
    with pytest.raises(InvalidInputError, match="has 100001 entries; allowed are 100000"):
        read_selector({"devices": ["dock-1"] * (MOST_TARGETS + 1)})


def test_a_label_that_no_target_has_is_refused_where_another_one_is_meant() -> None:
    targets = [TargetCandidate("dock-1", "dji", {"site": "north"}), TargetCandidate("dock-2", "dji", {"row": "7"})]
    check_labels_of(targets, {"site": "spread", "row": "per"})
    check_labels_of(targets, {"gateway": "per"})
    with pytest.raises(InvalidInputError, match="per: 'siet' is a label that no target has; is site meant"):
        check_labels_of(targets, {"row": "spread", "siet": "per"})
