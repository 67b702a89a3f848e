"""The events of one command, written as server-sent events."""

from __future__ import annotations

import orjson

from app.api import sse
from app.api.representation import command_json, instant, json_or_none
from app.commands.follow.watches import CommandFollower, Watches
from app.core.commands.history import Account, Report


async def feed_of(
    watches: Watches, command_id: str, seen: int | None, stream: sse.SseStream, *, to_the_end: bool
) -> None:
    """Write what happens to a command after the event `seen`; all of it, and first the command, when that is None."""
    async with watches.follow(command_id, seen or 0) as following:
        if seen is None:
            await stream.write(_event("command", command_id, 0, command_json(following.account.command)))
        while True:
            for data in _news(following):
                await stream.write(data)
            if following.gone or has_ended(following.account, following.seen, to_the_end=to_the_end):
                return
            await stream.rest(following.changed)


def _news(following: CommandFollower) -> list[bytes]:
    """The events that were not seen."""
    identity = following.account.command.id
    events = [_event("progress", identity, one.number, _report_json(one)) for one in following.reports()]
    if (ended := following.outcome()) is not None:
        events.append(_event("outcome", identity, following.seen, command_json(ended)))
    if (verified := following.verified()) is not None:
        events.append(_event("verified", identity, following.seen, command_json(verified)))
    if (late := following.late()) is not None:
        events.append(_event("late", identity, following.seen, command_json(late)))
    return [b"".join(events)] if events else []


def has_ended(account: Account, seen: int, *, to_the_end: bool) -> bool:
    """True if nothing comes after the event `seen`."""
    if to_the_end:
        return account.complete and seen >= account.last
    return account.command.state.final and seen > account.count


def _event(name: str, command_id: str, number: int, data: bytes) -> bytes:
    return sse.event(name, data, f"{command_id}/{number}")


def _report_json(report: Report) -> bytes:
    return orjson.dumps({"seq": report.number, "at": instant(report.at), "progress": json_or_none(report.progress)})
