"""Fleet runs in Redis, over the connection for lists: no command waits behind them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import orjson

from app.core import keys
from app.core.errors import StoreUnavailableError
from app.store.fleets import CHUNK, KEPT, MOST_LISTED, NewRecord, RunChange, RunRecord, Written, check_open
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import FLEET_CREATE, FLEET_FREEZE, FLEET_WRITE, ROLE
from app.store.rules import micros

_FIELDS: Final = ("version", "created", "fingerprint", "plan", "status")
_KEPT_MS: Final = micros(KEPT) // 1000
_DRAFT_MS: Final = 60_000
"""The targets of a run that is not there wait for the next chunk of them for so long."""


class RedisFleets:
    """See `app/core/keys.py` for the keys. All that belongs to a run is in one slot, apart from the lists of runs."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def create(self, record: NewRecord) -> str:
        run, targets, *_ = keys.run(record.run_id)
        if await self._call("HGET", run, "fingerprint") is None:
            check_open(int(await self._call("ZCARD", keys.OPEN_RUNS)))
        digest, count = await self._freeze(run, targets, record.targets)
        found, created, ended = await self._lanes.run_for_list(
            FLEET_CREATE,
            [run, targets],
            record.fingerprint,
            orjson.dumps(record.plan),
            orjson.dumps(record.status),
            record.marks,
            digest,
            count,
            micros(record.lasts + KEPT) // 1000,
        )
        if not created:
            raise _lost(record.run_id)
        await self._list(record.run_id, int(created), ended=bool(ended))
        return str(found, "ascii")

    async def relist(self, record: RunRecord) -> None:
        ended = await self._call("HGET", keys.run(record.run_id)[0], "ended")
        await self._list(record.run_id, record.created_at, ended=bool(ended))

    async def _list(self, run_id: str, created: int, *, ended: bool) -> None:
        await self._call("ZADD", keys.RUNS, created, run_id)
        beyond = await self._call("ZREVRANGEBYSCORE", keys.RUNS, "+inf", "-inf", "WITHSCORES", "LIMIT", MOST_LISTED, 1)
        if beyond:
            await self._call("ZREMRANGEBYSCORE", keys.RUNS, "-inf", beyond[1])
        if not ended:
            await self._call("ZADD", keys.OPEN_RUNS, created, run_id)

    async def _freeze(self, run: str, place: str, targets: Sequence[Sequence[str]]) -> tuple[str, int]:
        """Write the targets chunk by chunk, under a digest of all of them: two who create one run mix nothing up."""
        chunks, digest = [], blake2b(digest_size=16)
        for begin in range(0, len(targets), CHUNK):
            plain = orjson.dumps(targets[begin : begin + CHUNK])
            digest.update(plain)
            chunks.append(zlib.compress(plain))
            await asyncio.sleep(0)
        name = digest.hexdigest()
        for number, chunk in enumerate(chunks):
            done = await self._lanes.run_for_list(FLEET_FREEZE, [run, place], name, number, chunk, _DRAFT_MS)
            if done == b"lost":
                raise _lost(run)
            if done == b"there":
                break
        return name, len(chunks)

    async def read(self, run_id: str) -> RunRecord | None:
        found = await self._call("HMGET", keys.run(run_id)[0], *_FIELDS, "marks")
        return _record(run_id, found)

    async def targets(self, run_id: str, begin: int = 0, end: int | None = None) -> Sequence[Sequence[str]]:
        run, place, *_ = keys.run(run_id)
        name, count = await self._call("HMGET", run, "frozen", "total")
        if name is None:
            return []
        total = int(count) if end is None else min(end, int(count))
        listed: list[list[str]] = []
        first = begin // CHUNK
        for number in range(first, -(-total // CHUNK)):
            chunk = await self._call("HGET", place, f"{name.decode()}:{number}")
            if chunk is None:  # it has ended for good between two looks
                return []
            listed += orjson.loads(zlib.decompress(chunk))
        return listed[begin - first * CHUNK : total - first * CHUNK]

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
        if written is Written.GONE:
            await self._unlist([run_id])
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
            await self._unlist(gone)
        return [one for one in records if one is not None]

    async def _unlist(self, gone: Sequence[str]) -> None:
        await self._lanes.replies_for_list([("ZREM", place, *gone) for place in (keys.RUNS, keys.OPEN_RUNS)])

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


def _lost(place: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"targets that were written for {place} are gone, so it was not begun; try again")


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
