"""Approvals in the files of profiles: which methods need a second person, and what a file must not say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.errors import ConfigurationError
from app.profiles.loader import parse_profile
from tests.unit.profiles.test_interlocks import HEAD
from tests.unit.profiles.test_lanes import CLOSED


def approval(methods: str = '["fly_*"]', *further: str) -> str:
    return "\n".join(("[[approval]]", f"methods = {methods}", *further, ""))


def test_methods_find_the_shortest_time() -> None:
    one = parse_profile(HEAD + approval() + approval('["fly_home", "land"]', 'within = "90s"'), "p")
    assert one.approval_of("fly_away") == timedelta(minutes=15)
    assert one.approval_of("fly_home") == timedelta(seconds=90)
    assert one.approval_of("lamp") is None
    assert parse_profile(HEAD, "p").approval_of("fly_home") is None


@pytest.mark.parametrize(
    ("head", "tables", "place", "says"),
    [
        (HEAD, approval("[]"), "approval.0.methods", "1"),
        (HEAD, "[[approval]]\n", "approval.0.methods", ""),
        (HEAD, approval('["fly home"]'), "approval.0.methods.0", ""),
        (CLOSED, approval(), "approval.0.methods.0", "'fly_*' fits no method of the profile: land"),
        (HEAD, approval('["a"]', 'within = "500ms"'), "approval.0.within", "allowed: 1s to 168h"),
        (HEAD, approval('["a"]', 'within = "169h"'), "approval.0.within", "out of range"),
        (HEAD, approval('["a"]', "within = 60"), "approval.0.within", "write a number and its unit"),
        (HEAD, approval('["a"]', "people = 3"), "approval.0.people", ""),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_line_and_key(
    head: str, tables: str, place: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_profile(head + tables, "p.toml")
    text = str(refused.value)
    assert text.startswith("p.toml:")
    assert place in text
    assert says in text
