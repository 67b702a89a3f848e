"""Reads commands out of memory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.errors import CommandNotFoundError
from app.store.commands import CommandSlice, Query
from app.store.memory.commands.records import CommandTable
from app.store.rules import GONE, page_cursor, page_start


class MemoryCommandReader:
    """Reads commands from the table."""

    def __init__(self, table: CommandTable) -> None:
        self._table = table

    async def now(self) -> int:
        return self._table.now()

    async def date(self) -> int:
        return self._table.date()

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        self._table.forget_expired()
        return [record.command if (record := self._table.records.get(one)) else None for one in command_ids]

    async def read(self, command_id: str) -> Command:
        (command,) = await self.get([command_id])
        if command is None:
            raise CommandNotFoundError(command_id)
        return command

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        self._table.forget_expired()
        return [
            record.outcome
            if (record := self._table.records.get(one))
            else Outcome(one, CommandState.TIMED_OUT, self._table.now(), error=GONE)
            for one in command_ids
        ]

    async def list_commands(self, query: Query) -> CommandSlice:
        self._table.forget_expired()
        if query.idempotency_key is not None:
            identity = self._table.indexes.idempotency.get((query.device_id or "", query.idempotency_key))
            known = [] if identity is None else [self._table.records[identity].command]
            return CommandSlice([one for one in known if query.wants(one)], None)
        start = page_start(query.cursor)
        found: list[Command] = []
        for record in reversed(self._table.records.values()):  # by registration, newest first
            command = record.command
            if len(found) > query.limit and command.created_at < found[query.limit].created_at:
                break
            if query.wants(command) and (start is None or (command.created_at, command.id) < start):
                found.append(command)
        found.sort(key=lambda command: (command.created_at, command.id), reverse=True)
        page = found[: query.limit]
        return CommandSlice(page, page_cursor(page[-1].created_at, page[-1].id) if len(found) > len(page) > 0 else None)

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        self._table.forget_expired()
        commands = (self._table.records[one].command for one in self._table.indexes.open)
        own = (command for command in commands if command.home_node == node_id)
        return heapq.nsmallest(limit, own, key=lambda command: (command.deadline, command.id))
