"""A follower of all commands who was just told rests: the longer, the more of them there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from app.commands.follow.stream import Begun, CommandStream
from app.core.commands.stream import CommandChange, Marks
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import ManualClock


class Deaf:
    """A listener that wants nothing."""

    view = None

    def event(self, _one: CommandChange) -> bytes:
        return b""

    def gap(self, _since: int) -> bytes:
        return b""

    def cut_off(self) -> None:
        pass


@contextmanager
def followed(followers: int) -> Iterator[CommandStream]:
    """A stream that so many follow."""
    store = MemoryStateStore(ManualClock())
    feed = CommandStream(store.changes, store, Counter(), always=False)
    with ExitStack() as stack:
        for _ in range(followers):
            stack.enter_context(feed.follow(feed.follower(Begun(Marks(()), 0, gap=False), Deaf())))
        yield feed


def pauses(followers: int, now: float) -> list[float]:
    """The rests of 50 of so many followers who are told at this time."""
    with followed(followers) as feed:
        return [feed.pause(now) for _ in range(50)]


@pytest.mark.parametrize(
    ("followers", "least", "most"),
    [(1, 0.0, 0.0), (10, 0.0, 0.0), (20, 0.15, 0.31), (50, 0.37, 0.69), (1000, 0.37, 0.63)],
)
def test_many_rest_longer_than_few_and_not_all_as_long(followers: int, least: float, most: float) -> None:
    found = pauses(followers, 1000.0)
    assert all(least <= one <= most for one in found)
    assert (len(set(found)) > 1) is (most > 0)


def test_followers_who_were_told_at_different_times_rest_until_the_same_beats() -> None:
    ends = {round(now + one, 6) for now in (1000.0, 1000.013, 1000.021) for one in pauses(50, now)}
    assert len(ends) <= 7  # of 150, in a quarter of a second: a beat is a twentieth
    assert all(round(one / 0.05, 6).is_integer() for one in ends)


@pytest.mark.parametrize(("followers", "seconds"), [(0, 0.1), (10, 0.1), (20, 0.1), (50, 0.25), (1000, 0.25)])
def test_what_happens_is_read_less_often_where_those_who_follow_rest(followers: int, seconds: float) -> None:
    with followed(followers) as feed:
        assert feed.interval() == pytest.approx(seconds)
