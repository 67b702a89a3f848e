"""Asks several servers at once who the primary is: Sentinels, or members of a Redis Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, TypeVar

from redis.asyncio.connection import AbstractConnection

from app.store.redis.driver.outages import is_connection_error

ANSWER_SECONDS: Final = 1.0
"""The time that one of them may take to answer."""
OTHERS_SECONDS: Final = 0.1
"""The time that the others may take longer than the first one: one that was cut off may name an old primary."""
ASKING_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "protocol": 2,
        "driver_info": None,
        "client_name": "homing",
        "decode_responses": False,
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
    }
)
"""Options of a connection that is for one question."""

_Answer = TypeVar("_Answer")


async def first_answers(asking: Sequence[asyncio.Task[_Answer]]) -> tuple[list[_Answer], str]:
    """The answers that came soon, and why others did not."""
    done: set[asyncio.Task[_Answer]] = set()
    left = set(asking)
    while left and not any(one.exception() is None for one in done):
        more, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    if left:
        more, left = await asyncio.wait(left, timeout=OTHERS_SECONDS)
        done |= more
    errors = [error for one in done if (error := one.exception()) is not None]
    for error in errors:
        if not (is_connection_error(error) or isinstance(error, ValueError)):
            raise error
    reasons = "; ".join(sorted({str(error) or type(error).__name__ for error in errors}))
    return [one.result() for one in done if one.exception() is None], reasons


@asynccontextmanager
async def opened(connection: AbstractConnection) -> AsyncIterator[AbstractConnection]:
    """The connection, which stands inside the block."""
    try:
        await connection.connect()
        yield connection
    finally:
        await connection.disconnect(nowait=True)


async def reply_of(connection: AbstractConnection, *command: str) -> Any:  # noqa: ANN401 - what Redis replies
    """The reply of a command."""
    await connection.send_command(*command, check_health=False)
    reading: Awaitable[Any] = connection.read_response(disable_decoding=True)
    return await reading
