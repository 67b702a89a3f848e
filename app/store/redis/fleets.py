"""Fleet runs in Redis, over the connection for lists: no command waits behind them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import orjson

from app.core import keys
from app.store.fleets import KEPT, MOST_LISTED, NewRecord, RunChange, RunRecord, Written, check_open
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import FLEET_CREATE, FLEET_WRITE, ROLE
from app.store.rules import micros

_FIELDS: Final = ("version", "created", "fingerprint", "plan", "status")
_KEPT_MS: Final = micros(KEPT) // 1000


class RedisFleets:
    """See `app/core/keys.py` for the keys. All that belongs to a run is in one slot, apart from the lists of runs."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def create(self, record: NewRecord) -> str:
        run, targets, *_ = keys.run(record.run_id)
        if await self._call("HGET", run, "fingerprint") is None:
            check_open(int(await self._call("ZCARD", keys.OPEN_RUNS)))
        found, created, ended = await self._lanes.run_for_list(
            FLEET_CREATE,
            [run, targets],
            record.fingerprint,
            orjson.dumps(record.plan),
            orjson.dumps(record.status),
            record.marks,
            zlib.compress(orjson.dumps(record.targets)),
            micros(record.lasts + KEPT) // 1000,
        )
        await self._call("ZADD", keys.RUNS, int(created), record.run_id)
        if not ended:
            await self._call("ZADD", keys.OPEN_RUNS, int(created), record.run_id)
        return str(found, "ascii")

    async def read(self, run_id: str) -> RunRecord | None:
        found = await self._call("HMGET", keys.run(run_id)[0], *_FIELDS, "marks")
        return _record(run_id, found)

    async def targets(self, run_id: str) -> Sequence[Sequence[str]]:
        found = await self._call("GET", keys.run(run_id)[1])
        listed: list[list[str]] = [] if found is None else orjson.loads(zlib.decompress(found))
        return listed

    async def results(self, run_id: str, indexes: Sequence[int]) -> Sequence[Sequence[Any] | None]:
        if not indexes:
            return []
        found = await self._call("HMGET", keys.run(run_id)[2], *indexes)
        return [None if one is None else orjson.loads(one) for one in found]

    async def write(self, run_id: str, change: RunChange) -> Written:
        run, targets, results, _, epoch = keys.run(run_id)
        rows = [part for index, row in change.results.items() for part in (index, orjson.dumps(row))]
        reply = await self._lanes.run_for_list(
            FLEET_WRITE,
            [run, targets, results, epoch],
            change.version,
            "" if change.epoch is None else change.epoch,
            orjson.dumps(change.status),
            change.marks,
            _KEPT_MS if change.ended else "",
            *rows,
        )
        written = Written(str(reply, "ascii"))
        if change.ended and written is Written.YES:
            await self._call("ZREM", keys.OPEN_RUNS, run_id)
        return written

    async def open_runs(self) -> Sequence[str]:
        found = await self._call("ZRANGE", keys.OPEN_RUNS, 0, -1)
        return [one.decode() for one in found]

    async def runs(self) -> Sequence[RunRecord]:
        found = await self._call("ZREVRANGEBYSCORE", keys.RUNS, "+inf", "-inf", "LIMIT", 0, MOST_LISTED)
        ids = [one.decode() for one in found]
        rows = await self._lanes.replies_for_list([("HMGET", keys.run(one)[0], *_FIELDS) for one in ids])
        records = [_record(one, [*row, b""]) for one, row in zip(ids, rows, strict=True)]
        gone = [one for one, record in zip(ids, records, strict=True) if record is None]
        if gone:
            await self._lanes.replies_for_list([("ZREM", place, *gone) for place in (keys.RUNS, keys.OPEN_RUNS)])
        return [one for one in records if one is not None]

    async def drive(self, run_id: str, holder: str, lease: timedelta, gone: str = "") -> int:
        names = keys.run(run_id)[3:]
        return int(await self._lanes.run_for_list(ROLE, names, holder, micros(lease) // 1000, gone))

    async def let_go(self, run_id: str, holder: str) -> None:
        lease = keys.run(run_id)[3]
        if await self._call("GET", lease) == holder.encode():
            await self._call("DEL", lease)

    async def _call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        (reply,) = await self._lanes.replies_for_list([command])
        return reply


def _record(run_id: str, found: Sequence[Any]) -> RunRecord | None:
    version, created, fingerprint, plan, status, marks = found
    if version is None:
        return None
    return RunRecord(
        run_id=run_id,
        version=int(version),
        created_at=int(created),
        fingerprint=fingerprint.decode(),
        plan=orjson.loads(plan),
        status=orjson.loads(status),
        marks=marks,
    )
