"""Both twins of the client as one thing to test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isawaitable
from typing import Any

from homing_client import AsyncHoming, Homing

AnyHoming = AsyncHoming | Homing
Twin = Callable[..., AnyHoming]

TWINS: tuple[Twin, ...] = (AsyncHoming, Homing)


async def done(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method gives
    """Return what a method of either twin returns; the blocking one runs in a thread, as it would stop the loop."""
    value = await asyncio.to_thread(call, *arguments, **named)
    return await value if isawaitable(value) else value


async def all_of(call: Callable[..., Any], *arguments: Any, most: int | None = None, **named: Any) -> list[Any]:
    """Return what a method of either twin yields, up to `most`."""
    found: list[Any] = []
    values: AsyncIterator[Any] | Iterator[Any] = call(*arguments, **named)
    while most is None or len(found) < most:
        try:
            if isinstance(values, AsyncIterator):
                found.append(await anext(values))
            else:
                found.append(await asyncio.to_thread(_next, values))
        except (StopAsyncIteration, _End):
            break
    return found


class _End(Exception):  # noqa: N818 - a StopIteration cannot leave a thread
    pass


def _next(values: Iterator[Any]) -> Any:  # noqa: ANN401 - likewise
    try:
        return next(values)
    except StopIteration:
        raise _End from None


async def close(homing: AnyHoming) -> None:
    if isinstance(homing, AsyncHoming):
        await homing.aclose()
    else:
        await asyncio.to_thread(homing.close)
