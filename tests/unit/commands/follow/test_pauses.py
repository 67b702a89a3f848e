"""A follower of all commands who was just told rests: the longer, the more of them there are."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

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


@pytest.mark.parametrize(
    ("followers", "least", "most"), [(1, 0.0, 0.0), (20, 0.0, 0.0), (50, 0.18, 0.32), (1000, 0.37, 0.63)]
)
def test_many_rest_longer_than_few_and_not_all_as_long(followers: int, least: float, most: float) -> None:
    store = MemoryStateStore(ManualClock())
    feed = CommandStream(store.changes, store, Counter(), always=False)
    with ExitStack() as stack:
        for _ in range(followers):
            stack.enter_context(feed.follow(feed.follower(Begun(Marks(()), 0, gap=False), Deaf())))
        pauses = [feed.pause() for _ in range(50)]
    assert all(least <= one <= most for one in pauses)
    assert (len(set(pauses)) > 1) is (most > 0)
