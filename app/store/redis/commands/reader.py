"""Reads commands out of Redis: single ones over the lane of commands, many over that of lists."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from typing import Final

from redis.exceptions import ResponseError

from app.core import keys
from app.core.clock import Clock, wall_us
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.errors import CommandNotFoundError, InvalidInputError, StoreRefusedError, UnreadableRecordError
from app.core.identifiers import PARTITIONS, is_command_id, partition_of, partition_of_command
from app.store.commands import CommandSlice, Query
from app.store.redis.commands import records
from app.store.redis.commands.lists import Lists, Position
from app.store.redis.driver.each_server import those_that_answered
from app.store.redis.driver.lanes import LIST_BATCH, Lanes
from app.store.redis.driver.scripts import PENDING
from app.store.redis.driver.unreadable import Unreadable
from app.store.rules import GONE, page_cursor, page_start

PENDING_ROUND: Final = 200
READ_SLICE: Final = 50
"""The number of records of a list that are read at once."""
LOOK: Final = 100
"""The number of commands that are looked at together for those that fit a query."""
MOST_LOOKED: Final = 2000
LOOK_SECONDS: Final = 0.05
"""A page of those that fit looks at so many commands, or for so long, before it is short."""


class RedisCommandReader:
    """See `app/core/keys.py` for the keys, and lua/parts/record.lua for the fields of a record."""

    def __init__(self, lanes: Lanes, unreadable: Unreadable, clock: Clock) -> None:
        self._lanes = lanes
        self._unreadable = unreadable
        self._clock = clock
        self._lists = Lists(lanes.call_for_list, unreadable.member)

    async def now(self) -> int:
        return await self._lanes.now()

    async def date(self) -> int:
        return await self.now()

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        replies = await self._read(command_ids, records.COMMAND_FIELDS)
        return [self._command(one, fields) for one, fields in zip(command_ids, replies, strict=True)]

    async def read(self, command_id: str) -> Command:
        (fields,) = await self._read([command_id], records.COMMAND_FIELDS)
        if fields is None:
            raise CommandNotFoundError(command_id)
        return self._unreadable.checked(command_id, fields)

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        # Where one of several servers is away, the outcomes at others are told nevertheless.
        found = await asyncio.gather(*map(self._outcome_of, command_ids), return_exceptions=True)
        return those_that_answered(found)

    async def _outcome_of(self, command_id: str) -> Outcome | None:
        return self._outcome(command_id, await self._read_one(command_id, records.CHECKED_OUTCOME_FIELDS))

    async def list_commands(self, query: Query) -> CommandSlice:
        """For one device, its partition is read until the page is full; it may hold commands of other devices.

        Across devices every partition is asked for a few members, and those that may have more of the page again.
        """
        if query.idempotency_key is not None:
            found = await self._of_key(query.device_id or "", query.idempotency_key)
            return CommandSlice([one for one in found if query.wants(one)], None)
        start = _start(query)
        if query.looks_on:
            return await self._list_fitting(query, start)
        commands, _, more = await self._look(query, query.limit, start)
        more = _within(query, more)
        return CommandSlice([one for one in commands if query.wants(one)], page_cursor(*more) if more else None)

    async def _of_key(self, device_id: str, key: str) -> list[Command]:
        identity = await self._lanes.call("GET", keys.idempotency(partition_of(device_id), device_id, key))
        return [] if identity is None else await self._get_many([identity.decode()])

    async def _list_fitting(self, query: Query, start: Position | None) -> CommandSlice:
        """Looks on for those that are asked for, within bounds, so that a short page is rare."""
        shown: list[Command] = []
        looked, ends = 0, self._clock.monotonic() + LOOK_SECONDS
        while True:
            commands, members, more = await self._look(query, LOOK, start)
            for command in commands:
                if query.wants(command):
                    shown.append(command)
                if len(shown) == query.limit:
                    return CommandSlice(shown, page_cursor(command.created_at, command.id))
            looked += members
            more = _within(query, more)
            if more is None or looked >= MOST_LOOKED or self._clock.monotonic() >= ends:
                return CommandSlice(shown, page_cursor(*more) if more else None)
            start = more

    async def _look(
        self, query: Query, limit: int, start: Position | None
    ) -> tuple[list[Command], int, Position | None]:
        """The commands behind the next `limit` members at most, how many members those are, and where to go on."""
        if query.device_id is None:
            entries, more = await self._lists.newest(limit, start)
        else:
            entries, more = await self._lists.newest_of(query.device_id, limit, start)
        return await self._get_many([entry.command_id for entry in entries]), len(entries), more

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        found: list[str] = []
        for first in range(0, PARTITIONS, LIST_BATCH):
            some = range(first, first + LIST_BATCH)
            for ids in await asyncio.gather(*(self._pending_ids(one, node_id, limit) for one in some)):
                found += ids
        pending = (one for one in await self._get_many(found) if not one.state.final)
        return heapq.nsmallest(limit, pending, key=lambda command: (command.deadline, command.id))

    def _command(self, command_id: str, fields: records.Fields | None) -> Command | None:
        if fields is None:
            return None
        try:
            return self._unreadable.checked(command_id, fields)
        except UnreadableRecordError:
            return None

    def _outcome(self, command_id: str, fields: records.Fields | None) -> Outcome | None:
        if fields is None:
            return Outcome(command_id, CommandState.TIMED_OUT, wall_us(self._clock), error=GONE)
        try:
            return records.outcome_of(command_id, fields)
        except UnreadableRecordError as error:
            self._unreadable.skipped(error)
            return None

    async def _read(self, command_ids: Sequence[str], names: Sequence[str]) -> list[records.Fields | None]:
        """The fields of the records, None where there is none; `state` must be the first name."""
        return await asyncio.gather(*(self._read_one(one, names) for one in command_ids))

    async def _read_one(self, command_id: str, names: Sequence[str]) -> records.Fields | None:
        try:
            key = keys.callback(partition_of_command(command_id), command_id)
        except InvalidInputError:
            return None
        try:
            return _fields(names, await self._lanes.call("HMGET", key, *names))
        except StoreRefusedError:
            return records.NO_RECORD

    async def _get_many(self, command_ids: Sequence[str]) -> list[Command]:
        """Return those that there are, read in slices over the connection for lists."""
        commands: list[Command] = []
        for first in range(0, len(command_ids), READ_SLICE):
            known = [one for one in command_ids[first : first + READ_SLICE] if is_command_id(one)]
            replies = await self._lanes.call_for_list(
                [("HMGET", keys.callback(partition_of_command(one), one), *records.COMMAND_FIELDS) for one in known]
            )
            for one, values in zip(known, replies, strict=True):
                command = self._command(one, _fields(records.COMMAND_FIELDS, values))
                commands += () if command is None else (command,)
        return commands

    async def _pending_ids(self, partition: int, node_id: str, limit: int) -> list[str]:
        ids: dict[str, None] = {}
        least = b"-inf"
        while least and len(ids) < limit:
            least, *found = await self._lanes.run_for_list(
                PENDING, [keys.due(partition)], node_id, least, PENDING_ROUND
            )
            ids.update((command_id.decode(), None) for command_id in found)
        return list(ids)


def _fields(names: Sequence[str], values: Sequence[bytes | None] | ResponseError) -> records.Fields | None:
    if isinstance(values, ResponseError):
        return records.NO_RECORD
    return dict(zip(names, values, strict=True)) if values[0] is not None else None


def _start(query: Query) -> Position | None:
    """Behind what a page begins: the page before, or the first instant that is too late."""
    behind = page_start(query.cursor)
    if query.until_us is None:
        return behind
    latest = (query.until_us + 1, "")
    return latest if behind is None else min(behind, latest)


def _within(query: Query, more: Position | None) -> Position | None:
    """Return where the next page begins; None where all further ones are too old."""
    return None if more is None or (query.since_us is not None and more[0] < query.since_us) else more
