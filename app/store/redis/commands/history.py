"""Reads what has happened to a command out of Redis, and has a node told of what happens next."""

from __future__ import annotations

from collections.abc import Sequence

from app.core import keys
from app.core.commands.history import Account, Report
from app.core.errors import CommandNotFoundError, InvalidInputError, UnreadableRecordError
from app.core.identifiers import partition_of_command
from app.store.command_history import MOST_WATCHING
from app.store.redis.commands import records
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import FOLLOW
from app.store.redis.driver.unreadable import Unreadable

_FIELDS = (*records.COMMAND_FIELDS, "seq")


class RedisCommandHistory:
    """See `app/core/keys.py` for the keys, and lua/follow.lua for the step."""

    def __init__(self, lanes: Lanes, unreadable: Unreadable) -> None:
        self._lanes = lanes
        self._unreadable = unreadable

    async def follow(self, command_id: str, after: int = 0, watcher: str | None = None) -> Account:
        try:
            partition = partition_of_command(command_id)
        except InvalidInputError:
            raise CommandNotFoundError(command_id) from None
        script_keys = [keys.callback(partition, command_id), keys.history(partition, command_id)]
        reply = await self._lanes.run(FOLLOW, script_keys, command_id, after, watcher or "", MOST_WATCHING, *_FIELDS)
        match reply:
            case [b"found", values, entries]:
                fields = dict(zip(_FIELDS, values, strict=True))
                command = self._unreadable.checked(command_id, fields)
                return Account(command, int(fields["seq"] or 0), _reports(entries, command.progress))
            case [b"unreadable", reason]:
                raise self._unreadable.skipped(UnreadableRecordError(command_id, reason.decode()))
            case _:
                raise CommandNotFoundError(command_id)


def _reports(entries: Sequence[bytes], latest: bytes | None) -> list[Report]:
    """The text of one that was too long to be kept is that of the record, if it is the latest."""
    reports = []
    for entry in entries:
        number, at, progress = entry.split(b" ", 2)
        reports.append(Report(int(number), int(at), progress or None))
    if reports and reports[-1].progress is None:
        reports[-1] = Report(reports[-1].number, reports[-1].at, latest)
    return reports
