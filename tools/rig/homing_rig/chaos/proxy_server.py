"""A process that carries connections through fault proxies: `python -m homing_rig.chaos.proxy_server`.

It reads calls on its standard input, a line of JSON each, and answers each with a line when the call has taken effect.
It ends when that input ends: so it ends with the rig, even if that is killed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

import orjson

from homing_rig.chaos.proxy import FaultProxy

HOST: Final = "127.0.0.1"


class _Calls:
    """Does what a call says."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._proxies: list[FaultProxy] = []

    async def do(self, name: str, proxy: int, argument: float, seed: int) -> dict[str, Any]:
        """The facts that the caller needs to know; `argument` is a port or seconds."""
        if name == "open":
            opened = await self._stack.enter_async_context(FaultProxy(HOST, int(argument), seed=seed))
            self._proxies.append(opened)
            return {"proxy": len(self._proxies) - 1, "port": opened.port}
        one = self._proxies[proxy]
        met = one.open
        match name:
            case "lead_to":
                one.target = (HOST, int(argument))
            case "latency":
                one.latency(timedelta(seconds=argument))
            case "blackhole":
                one.blackhole()
            case "reset":
                one.reset()
            case "heal":
                one.heal()
            case _:
                raise ValueError(f"{name} is no call")
        return {"met": met}


async def serve() -> None:
    """Answer calls until there can be no more."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with AsyncExitStack() as stack:
        calls = _Calls(stack)
        while line := await reader.readline():
            number, *call = orjson.loads(line)
            said = {"number": number, **await calls.do(*call)}
            sys.stdout.buffer.write(orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the rig as well, which then ends this input
    asyncio.run(serve())
