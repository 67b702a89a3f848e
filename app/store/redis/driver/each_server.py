"""Asks each server of a Redis Cluster for its own part, so that one that is away keeps nobody from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from app.core.errors import StoreUnavailableError

_Reply = TypeVar("_Reply")


async def of_each_server(
    keys: Sequence[str], server_of: Callable[[str], str], ask: Callable[[Sequence[int]], Awaitable[Sequence[_Reply]]]
) -> list[_Reply | None]:
    """The replies for the keys, in their order; None for those of a server that is away.

    `ask` gets the places of all keys of one server. StoreUnavailableError when all servers are away.
    """
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(server_of(key), []).append(place)
    found = those_that_answered(await asyncio.gather(*map(ask, places.values()), return_exceptions=True))
    replies: list[_Reply | None] = [None] * len(keys)
    for some, answers in zip(places.values(), found, strict=True):
        if answers is not None:
            for place, answer in zip(some, answers, strict=True):
                replies[place] = answer
    return replies


def those_that_answered(found: Sequence[_Reply | BaseException]) -> list[_Reply | None]:
    """The replies, None in place of one whose server is away.

    StoreUnavailableError when all of them are; any other error is raised whatever the others said.
    """
    raise_for_all(found)
    return [None if isinstance(one, BaseException) else one for one in found]


def raise_for_all(found: Sequence[object]) -> None:
    """Raise StoreUnavailableError when all servers are away, and any other error whatever the others said."""
    errors = [one for one in found if isinstance(one, BaseException)]
    for error in errors:
        if len(errors) == len(found) or not isinstance(error, StoreUnavailableError):
            raise error
