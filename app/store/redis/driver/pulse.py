"""A server that has fallen silent may answer somebody else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from redis.asyncio.connection import AbstractConnection

from app.store.redis.driver.calls import pack

_PING: Final = pack(("PING",))


async def answers(connect: Callable[[], AbstractConnection], seconds: float) -> bool:
    """True if it answers PING on a new connection within so many seconds, as one that is only slow or busy does."""
    connection = connect()
    try:
        async with asyncio.timeout(seconds):
            await connection.connect()
            await connection.send_packed_command([_PING], check_health=False)
            await connection.read_response(disable_decoding=True, timeout=math.inf)
    except Exception:  # noqa: BLE001 - what the drivers raise is no closed set, and each of them means no answer
        return False
    finally:
        await connection.disconnect(nowait=True)
    return True
