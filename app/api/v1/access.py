"""The access directory as one document, and questions about it, over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import Query, Request
from fastapi import Response as Reply

from app.access.access_file import AccessFile
from app.access.conditions import tag_of
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import Records, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1.access_models import Check, Decision, Differences
from app.core import errors
from app.core.access.questions import Question
from app.core.access.rules import Action

_ACTS: Final = acts(Action.ACCESS)
_READING: Final = (BY_ERROR[errors.NoDirectoryError], problems.INVALID, problems.ACCESS_STORE_AWAY)

router = GuardedRouter(prefix="/v1/access", tags=["access"])


@router.get(
    "",
    summary="Read the access directory as one document",
    response_model=AccessFile,
    response_description="The whole directory, without keys and passwords.",
    responses={
        200: {"headers": {"ETag": header("The version of this record, for `If-Match`.")}},
        **problems_of(BY_ERROR[errors.NoDirectoryError], problems.ACCESS_STORE_AWAY),
    },
    openapi_extra=_ACTS,
)
async def read_access(records: Records, asker: WhoAsks) -> Reply:
    """Returns what `homing access export` prints. The caller must operate Homing itself, thus belong to no tenant."""
    shown = (await records.people.document(asker.caller)).model_dump(mode="json")
    return BytesResponse(orjson.dumps(shown), headers=[etag(tag_of(shown))])


@router.put(
    "",
    summary="Apply a document to the access directory",
    response_model=Differences,
    response_description="The changes that were made, or would be.",
    responses=problems_of(
        *_READING,
        BY_ERROR[errors.EntryConflictError],
        BY_ERROR[errors.PreconditionFailedError],
        BY_ERROR[errors.VersionConflictError],
    ),
    openapi_extra=_ACTS,
)
async def put_access(
    request: Request,
    body: AccessFile,
    condition: Conditional,
    records: Records,
    asker: WhoAsks,
    *,
    dry_run: Annotated[
        bool, Query(description="Report the changes without making them.", json_schema_extra={"enum": [True, False]})
    ] = False,
) -> Reply:
    """Makes all changes or none, as `homing access apply` does. A missing section is left alone.

    When a principal is removed, so are their keys.
    """
    check_names(request, ("dry_run",))
    changes = await records.people.put_document(asker.caller, body, condition, dry_run=dry_run)
    return BytesResponse(orjson.dumps({"changes": changes}))


@router.post(
    "/check",
    summary="Check whether a principal may do something, and why",
    response_model=Decision,
    response_description="The decision, with the rule that decided it, or the rules that nearly allow it.",
    responses=problems_of(*_READING, BY_ERROR[errors.EntryNotFoundError]),
    openapi_extra=_ACTS,
)
async def check_access(body: Check, records: Records, asker: WhoAsks) -> Reply:
    """Callers may ask about principals whom they administer, and about themselves with the key of this request."""
    question = Question(body.action, body.device, body.profile, body.method, body.tenant)
    found = await records.people.explain(asker.caller, body.principal, question)
    return BytesResponse(
        orjson.dumps(
            {
                "allowed": found.allowed,
                "reason": found.reason,
                "rule": None if found.rule is None else f"{found.rule.name} {found.rule.text}",
                "requires": found.requires,
                "limits": [f"{one.name} {one.text}" for one in found.limits],
                "nearest": found.nearest,
            }
        )
    )
