"""Follows commands in memory."""

from __future__ import annotations

from app.core.commands.history import MOST_REPORT_BYTES, MOST_REPORTS, Account, Report, thinned
from app.core.errors import CommandNotFoundError
from app.store.command_history import MOST_WATCHING
from app.store.memory.commands.records import CommandTable, Record


class MemoryCommandHistory:
    """The history of commands, from the table."""

    def __init__(self, table: CommandTable) -> None:
        self._table = table

    async def follow(self, command_id: str, after: int = 0, watcher: str | None = None) -> Account:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None:
            raise CommandNotFoundError(command_id)
        if watcher is not None:
            _watch(record, watcher)
        reports = [one for one in record.reports if one.number > after]
        if reports and reports[-1].progress is None:
            reports[-1] = Report(reports[-1].number, reports[-1].at, record.command.progress)
        return Account(record.command, record.report_count, reports)


def _watch(record: Record, watcher: str) -> None:
    if watcher not in record.watching:
        record.watching = [*record.watching, watcher][-MOST_WATCHING:]
    if watcher not in record.waiting:
        record.waiting.append(watcher)


def note_report(record: Record, progress: bytes | None, at: int) -> bool:
    """Put a report into the history; whether it was one: what is said twice in a row came twice."""
    if record.reports and record.command.progress == progress:
        return False
    record.report_count += 1
    text = progress if progress is not None and len(progress) <= MOST_REPORT_BYTES else None
    record.reports.append(Report(record.report_count, at, text))
    if len(record.reports) > MOST_REPORTS:
        record.reports = thinned(record.reports)
    return True
