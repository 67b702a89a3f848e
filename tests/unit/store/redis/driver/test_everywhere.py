"""A call to each primary of a Redis Cluster: no answer is left out, only who is away where the caller allows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.core.errors import StoreUnavailableError
from app.core.redis_address import Place
from app.store.redis.driver.held_slots import SlotCall
from app.store.redis.driver.router import SlotRouter

AWAY = StoreUnavailableError("away")


def router_of(replies: Sequence[bytes | StoreUnavailableError | None]) -> SlotRouter:
    """A router whose primaries answer so, each at once."""
    router = SlotRouter("redis+cluster://127.0.0.1:1", cast("Any", None), [], counters=Counter())
    places: list[Place] = [("127.0.0.1", number) for number in range(len(replies))]
    router._slots = cast("Any", SimpleNamespace(primaries=places))
    for place, reply in zip(places, replies, strict=True):
        router._members[place] = cast("Any", SimpleNamespace(queue=PrimaryThatAnswers(reply)))
    return router


class PrimaryThatAnswers:
    """The queue of a primary, in which nothing waits."""

    def __init__(self, reply: bytes | StoreUnavailableError | None) -> None:
        self._reply = reply

    def add(self, call: SlotCall) -> None:
        if isinstance(self._reply, StoreUnavailableError):
            call.future.set_exception(self._reply)
        else:
            call.future.set_result(self._reply)


@pytest.mark.parametrize("partly", [True, False])
async def test_a_primary_that_has_nothing_to_say_has_answered(*, partly: bool) -> None:
    assert await router_of([b"1", None]).everywhere(("EVAL", "return nil", 0), 1.0, partly=partly) == [b"1", None]


async def test_those_that_are_away_are_left_out_only_where_the_caller_says_so() -> None:
    router = router_of([b"1", AWAY, None])
    assert await router.everywhere(("INFO",), 1.0, partly=True) == [b"1", None]
    with pytest.raises(StoreUnavailableError):
        await router.everywhere(("INFO",), 1.0)


async def test_where_all_are_away_that_is_said_in_any_case() -> None:
    with pytest.raises(StoreUnavailableError):
        await router_of([AWAY, AWAY]).everywhere(("INFO",), 1.0, partly=True)
