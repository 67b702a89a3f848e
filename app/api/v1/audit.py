"""The audit over HTTP."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, Query, Request
from fastapi import Response as Reply
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.cursors import ANY as ANY_CURSOR
from app.api.dependencies import Records, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import Limit, check_names, query
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1.access_models import AuditPage, AuditVerified
from app.core import errors
from app.core.access.rules import Action
from app.core.errors import InvalidInputError
from app.store.audit import AuditEntry, AuditPosition, AuditQuery

_ACTS: Final = acts(Action.AUDIT)
_PROBLEMS: Final = (BY_ERROR[errors.NoDirectoryError], problems.ACCESS_STORE_AWAY)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_CURSOR: Final = "([0-9]{1,18})_([0-9]{1,18})_([0-9]{1,19})_([!-~]{1,200})"
_MOST_PLACE: Final = 18 + 18 + 19 + 200 + 3
_LIST: Final = "audit"
_DATE: Final = re.compile("[0-9]{4}-")
_Text = Annotated[str, StringConstraints(min_length=1, max_length=128)]

router = GuardedRouter(prefix="/v1/audit", tags=["access"])


def _is_date(text: object) -> object:
    """Numbers are seconds to pydantic, and a mistake of whoever asks."""
    if isinstance(text, str) and _DATE.match(text) is None:
        raise ValueError("no instant; allowed: RFC 3339, such as 2026-03-01T08:00:00Z")
    return text


_Instant = Annotated[AwareDatetime, BeforeValidator(_is_date)] | SkipJsonSchema[None]


async def _asked(
    request: Request,
    asker: WhoAsks,
    since: Annotated[
        _Instant,
        Query(
            description="Return only lines at or after this instant (RFC 3339).",
            json_schema_extra={"pattern": "^[0-9]{4}-"},
            examples=["2026-03-01T08:00:00Z"],
        ),
    ] = None,
    until: Annotated[
        _Instant,
        Query(
            description="Return only lines at or before this instant (RFC 3339).",
            json_schema_extra={"pattern": "^[0-9]{4}-"},
            examples=["2026-03-01T09:00:00Z"],
        ),
    ] = None,
    who: Annotated[
        _Text | SkipJsonSchema[None],
        Query(description="Return only lines about requests of this principal.", examples=["ci"]),
    ] = None,
    device: Annotated[
        _Text | SkipJsonSchema[None], Query(description="Return only lines about this device.", examples=["dock-1"])
    ] = None,
    limit: Limit = 50,
    cursor: Annotated[
        str | SkipJsonSchema[None],
        query(
            "The `cursor` of the previous page.", ANY_CURSOR, "1772352000000000_17_0_node-1/01JC8ZQ5M7W3T9K2V4X6Y8B0D1"
        ),
    ] = None,
) -> AuditQuery:
    check_names(request, ("since", "until", "who", "device", "limit", "cursor"))
    since_us = 0 if since is None else _us(since)
    before = None if cursor is None else _place(asker.cursors.take(_LIST, cursor))
    if until is not None:
        latest = AuditPosition(max(0, _us(until) + 1), "", 0, 0)
        before = latest if before is None else min(before, latest)
    return AuditQuery(since_us=max(0, since_us), who=who, device=device, before=before, limit=limit)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _place(cursor: str) -> AuditPosition:
    found = re.fullmatch(_CURSOR, cursor)
    if found is None:
        raise InvalidInputError("cursor", "is none; allowed: what the page before gave")
    return AuditPosition(int(found[1]), found[4], int(found[2]), int(found[3]))


@router.get(
    "",
    summary="Read the audit log, newest first",
    response_model=AuditPage,
    response_description="A page of the audit log.",
    responses=problems_of(*_PROBLEMS, problems.INVALID),
    openapi_extra=_ACTS,
)
async def list_audit_lines(asked: Annotated[AuditQuery, Depends(_asked)], records: Records, asker: WhoAsks) -> Reply:
    """Lists who asked for what, and how it ended. An entry appears within a second.

    Callers see their own tenant; operators of Homing itself see all tenants. A page may be short or empty although
    there is more: `cursor` is then set.
    """
    found = await records.audit.page(asker.caller, asked)
    before = found.before
    cursor = None
    if before is not None:
        place = f"{before.at_us}_{before.seq}_{before.part}_{before.writer}"
        cursor = asker.cursors.give(_LIST, place, _MOST_PLACE)
    return BytesResponse(orjson.dumps({"lines": [_shown(one) for one in found.entries], "cursor": cursor}))


@router.get(
    "/verify",
    summary="Check the audit log for tampering",
    response_model=AuditVerified,
    response_description="The number of lines that were read, and the faults that were found.",
    responses=problems_of(*_PROBLEMS),
    openapi_extra=_ACTS,
)
async def verify_audit(records: Records, asker: WhoAsks) -> Reply:
    """Reads the whole audit log, which may take long. `homing audit verify` can also compare heads from node logs.

    An `empty` audit log counts as `intact`: there is nothing to verify and nothing wrong.
    """
    found, reason = await records.audit.verify(asker.caller)
    faults = [{"writer": one.writer, "seq": one.seq, "what": one.what} for one in found.faults]
    shown = {"intact": not faults, "writers": found.writers, "lines": found.lines, "heads": found.heads}
    return BytesResponse(orjson.dumps({**shown, "faults": faults, "empty": found.empty, "reason": reason}))


def _shown(entry: AuditEntry) -> dict[str, Any]:
    try:
        told: object = orjson.loads(entry.body)
    except orjson.JSONDecodeError:
        told = None
    at = instant(entry.place.at_us)
    return {"at": at, "writer": entry.place.writer, "seq": entry.place.seq, "hash": entry.hash.hex(), "line": told}
