"""The JSON of a command. A text that is JSON already is copied; only the code of an error is read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from app.commands.explain.explainer import CommandExplanation
from app.core.commands.approval import APPROVE, REFUSE, Approval
from app.core.commands.command import Command, Hold
from app.core.commands.diagnosis import DeviceSighting
from app.core.commands.faults import with_code_text
from app.store.commands import CommandSlice

SLICE: Final = 25
"""The number of commands of a page that are written at once."""

_MICROSECONDS: Final = 1_000_000
_RECEIVED_AT: Final = re.compile(rb'"received_at":([0-9]{1,18})\}\Z')


def instant(microseconds: int) -> str:
    """Microseconds since the Unix epoch as RFC 3339 in UTC, to the millisecond."""
    seconds, rest = divmod(microseconds, _MICROSECONDS)
    return f"{_second(seconds)}.{rest // 1000:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def command_json(command: Command) -> bytes:
    """One command."""
    return orjson.dumps(_members(command))


async def page_json(page: CommandSlice) -> bytes:
    """A page of commands. The event loop turns now and then meanwhile, as it may be long."""
    parts = []
    for first in range(0, len(page.commands), SLICE):
        parts += [orjson.dumps(_members(command)) for command in page.commands[first : first + SLICE]]
        await asyncio.sleep(0)
    return b'{"commands":[%b],"cursor":%b}' % (b",".join(parts), orjson.dumps(page.cursor))


def _members(command: Command) -> dict[str, Any]:
    return {
        "id": command.id,
        "device_id": command.device_id,
        "method": command.method,
        "params": orjson.Fragment(command.params),
        "state": command.state,
        "result": json_or_none(command.result),
        "error": error_or_none(command.error),
        "deadline": instant(command.deadline),
        "created_at": instant(command.created_at),
        "finished_at": None if command.finished_at is None else instant(command.finished_at),
        "home_node": command.home_node,
        "received_by": command.received_by,
        "matched_by": command.matched_by,
        "forwarded": command.forwarded,
        "late": None if command.late is None else orjson.Fragment(_RECEIVED_AT.sub(_readable, command.late)),
        "progress": None if command.state.final else json_or_none(command.progress),
        "last_progress": json_or_none(command.progress) if command.state.final else None,
        "profile": command.profile,
        "if_offline": command.if_offline,
        **({} if command.hold is None else {"hold": _hold(command, command.hold)}),
        **({} if command.confirmed_by is None else {"confirmed_by": _confirmed(command.confirmed_by)}),
        **({} if command.verified is None else {"verified": _verified(command.verified)}),
        **({"requested_by": "homing"} if command.by_homing else {}),
    }


def _confirmed(finding: bytes) -> dict[str, Any]:
    said: dict[str, Any] = orjson.loads(finding)
    return said | {"at": instant(said["at"])}


def _verified(finding: bytes) -> dict[str, Any]:
    said: dict[str, Any] = _confirmed(finding)
    return said | {"found_at": instant(said["found_at"])}


def _hold(command: Command, hold: Hold) -> dict[str, Any]:
    return {
        "waits_for": command.waits_for,
        "until": instant(hold.until),
        **({} if hold.not_before is None else {"not_before": instant(hold.not_before)}),
        **({} if command.lane is None else {"lane": command.lane.name}),
        **({"replaces": hold.replaces} if hold.replaces else {}),
        **({"run": hold.run} if hold.run else {}),
        **({} if hold.approval is None else {"approval": _approval(hold.approval)}),
        "claims": hold.claims,
    }


def _approval(approval: Approval) -> dict[str, Any]:
    decision = approval.decision
    if decision is None:
        return {"until": instant(approval.until)}
    return {
        "until": instant(approval.until),
        "decision": APPROVE if decision.approves else REFUSE,
        "by": decision.name,
        "at": instant(approval.decided_at or 0),
        "note": decision.note,
    }


def heard_json(one: DeviceSighting | None) -> dict[str, str] | None:
    """The JSON of the place where a device was heard last."""
    return (
        None if one is None else {"at": instant(one.at), "node": one.node, "profile": one.profile, "topic": one.topic}
    )


def explanation_json(explanation: CommandExplanation, presence: Mapping[str, object] | None = None) -> bytes:
    """The JSON of what became of a command; `presence` is what the event log knows of its device."""
    judgement = explanation.judgement
    return orjson.dumps(
        {
            "command": orjson.Fragment(command_json(explanation.command)),
            "verdict": {"code": judgement.code, "text": judgement.text, "evidence": list(judgement.evidence)},
            "timeline": [
                {
                    "at": None if one.at is None else instant(one.at),
                    "node": one.node or None,
                    "what": one.what,
                    "topic": one.topic,
                    "reason": one.reason,
                    "bytes": one.size,
                }
                for one in explanation.timeline
            ],
            "misses": [
                {
                    "at": instant(one.miss.at),
                    "node": one.miss.node,
                    "topic": one.miss.topic,
                    "reason": one.miss.reason,
                    "got": one.miss.got or None,
                    "score": one.score,
                }
                for one in explanation.near
            ],
            "heard": [heard_json(one) for one in explanation.heard],
            "presence": presence,
            "gaps": list(explanation.gaps),
        }
    )


def json_or_none(text: bytes | None) -> orjson.Fragment | None:
    """A JSON text to be copied."""
    return None if text is None else orjson.Fragment(text)


def error_or_none(text: bytes | None) -> orjson.Fragment | None:
    """An error, with its code as text besides."""
    return None if text is None else orjson.Fragment(with_code_text(text))


def _readable(received_at: re.Match[bytes]) -> bytes:
    return b'"received_at":"%b"}' % instant(int(received_at[1])).encode()
