"""Cursors under a name in Redis: a hash for each caller, changed by one script."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from app.core.events import keys
from app.core.events.named_cursors import KEPT, MOST_OF_OWNER, no_room
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.scripts import COMMIT_CURSOR
from app.store.redis.events.calls import EventCalls, parsing

_KEPT_MS: Final = KEPT // timedelta(milliseconds=1)


class RedisCursors:
    """They go by the connections of the event log."""

    def __init__(self, calls: EventCalls) -> None:
        self._calls = calls

    async def read(self, owner: str) -> Mapping[str, bytes]:
        found: list[Any] = await self._calls.call("HGETALL", keys.cursors(owner))
        with parsing(keys.cursors(owner)):
            return {name.decode(): document for name, document in zip(found[::2], found[1::2], strict=True)}

    async def swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        arguments: list[Argument] = [name, before or b"", after or b"", MOST_OF_OWNER, _KEPT_MS]
        done: int = await self._calls.run(COMMIT_CURSOR, [keys.cursors(owner)], arguments)
        if done < 0:
            raise no_room()
        return done == 1
