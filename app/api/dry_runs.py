"""Dry runs over HTTP: what is asked for is read, and what would become of the command is written."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.api.hot import HotRoute
from app.api.http import headers_of, read_body
from app.api.media_types import media_type_refusal
from app.api.problems import BY_ERROR, INTERNAL, UNSENT_BY_CODE, ProblemType
from app.api.representation import instant
from app.commands.dry_runner import DryLane, DryRun
from app.commands.send.registrar import CommandRequest
from app.commands.send.unsent import DEVICE_OFFLINE, said_offline
from app.core.durations import format_duration
from app.core.errors import InterlockError, InvalidInputError, without_values
from app.core.payload import decode_json
from app.core.profiles.interlocks import InterlockVerdict

SEAL = "dry_run"
"""The member by which a body says that it is never to be sent: a node that knows no dry runs refuses it."""


async def read_dry_run(device_id: str, request: Request, hot: HotRoute) -> CommandRequest | Reply:
    """Return the command that is asked for, or the refusal of a body that is no JSON. InvalidInputError."""
    headers = headers_of(request.scope)
    refusal = media_type_refusal(headers)
    if refusal is not None:
        return refusal
    body = decode_json(await read_body(request.receive, headers, seconds=hot.body_seconds))
    if isinstance(body, dict) and body.pop(SEAL, True) is not True:
        raise InvalidInputError(SEAL, "is not true, and the query says that it is; allowed: true, or nothing")
    return hot.body.read(device_id, body, headers.get(b"idempotency-key"))


def dry_run_json(found: DryRun, *, reads: bool) -> bytes:
    """Return the JSON of what would become of a command; `reads` tells whether its caller may read the device."""
    asked = found.registration
    since = found.offline_since
    refusals = [_refusal(BY_ERROR.get(type(one), INTERNAL), _sentence(one, reads=reads)) for one in found.refusals]
    if since is not None:
        refusals.append(_refusal(UNSENT_BY_CODE[DEVICE_OFFLINE], said_offline(asked.device_id, since)))
    return orjson.dumps(
        {
            "dry_run": True,
            "would": found.would,
            "device_id": asked.device_id,
            "method": asked.method,
            "profile": asked.profile,
            "timeout": format_duration(asked.timeout),
            "if_offline": asked.if_offline,
            "refusals": refusals,
            "waits_for": found.obstacles,
            "joins": None if found.joins is None or not reads else found.joins.id,
            "interlocks": [verdict_json(one, reads=reads) for one in found.verdicts],
            "lane": None if found.lane is None else _lane(found.lane),
            "presence": {
                "online": found.online if reads else None,
                "offline_since": None if since is None else instant(since),
            },
            "broker_connected": found.connected,
        }
    )


def verdict_json(one: InterlockVerdict, *, reads: bool) -> dict[str, Any]:
    """Return an interlock with its result, and with values where the caller may read the device."""
    shown = one.shown()
    return {"result": one.result, **(shown if reads else without_values(shown))}


def _refusal(kind: ProblemType, detail: str) -> dict[str, object]:
    return {"type": kind.uri, "title": kind.title, "status": kind.status, "detail": detail}


def _sentence(error: Exception, *, reads: bool) -> str:
    return str(error.without_values() if isinstance(error, InterlockError) and not reads else error)


def _lane(one: DryLane) -> dict[str, object]:
    return {
        "name": one.lane.name,
        "order": one.lane.order,
        "width": one.lane.width,
        "in_flight": one.now.in_flight,
        "waiting": len(one.now.waiting),
        "position": one.position,
        "stopped": one.now.stop is not None,
    }
