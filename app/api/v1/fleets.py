"""Fleet runs over HTTP: begun, followed, paused, resumed, aborted, retried and explained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import orjson
from fastapi import Body, Depends, Header, Path, Query, Request
from fastapi import Response as Reply
from pydantic import AfterValidator, BeforeValidator, JsonValue
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.dependencies import Asker, FleetBodies, NodePorts, WhoAsks
from app.api.http import BytesResponse, headers_of
from app.api.media_types import accepts
from app.api.openapi import acts, header, json_of, problems_of
from app.api.pages import MOST_PLACE, Listing
from app.api.parameters import DEFAULT_LIMIT, MOST_LISTED, DryRunFlag, Limit, ListCursor, ListLimit, check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute, check_readable
from app.api.v1 import fleet_csv, fleet_parquet
from app.api.v1 import fleet_models as models
from app.api.v1.command_models import said
from app.api.v1.fleet_models import explanation_json, mark_of_word, run_json, target_json
from app.core import errors, identifiers
from app.core.access.rules import Action
from app.core.errors import InvalidInputError
from app.core.fleets.ids import RUN_ID
from app.core.fleets.marks import MARK_OF_WORD
from app.core.fleets.run import FleetRun
from app.core.fleets.targets import MOST_TARGETS
from app.core.identifiers import validate_idempotency_key
from app.fleets.administration import TargetRow
from app.fleets.plan import KnownRun
from app.fleets.plane import FleetPlane

SHOWN_DRY: Final = 100
_AWAY: Final = BY_ERROR[errors.StoreUnavailableError]
_OF_ONE: Final = (BY_ERROR[errors.RunNotFoundError], problems.INVALID, _AWAY)
_MAY: Final = acts(Action.FLEET)

router = GuardedRouter(prefix="/v1/fleet-runs", tags=["fleet runs"], route_class=StrictBodyRoute)

_Id = Annotated[
    str,
    Path(
        description="The id of the run.",
        json_schema_extra=said(RUN_ID),
        examples=[models.EXAMPLE_ID],
        alias="run_id",
    ),
]


_Key = Annotated[
    str | SkipJsonSchema[None],
    AfterValidator(validate_idempotency_key),
    Header(
        alias="Idempotency-Key",
        description="Calls of one principal with the same key are one run.",
        json_schema_extra=said(identifiers.IDEMPOTENCY_KEY),
        examples=["rollout-7"],
    ),
]
_BEGUN: Final[Mapping[str, Any]] = {
    "headers": {
        "Location": header("The path of the run."),
        "Idempotent-Replayed": header("`true` if an earlier call with the same key began the run."),
    }
}
_NOT_BEGUN: Final = (
    problems.INVALID,
    BY_ERROR[errors.NoTargetsError],
    BY_ERROR[errors.RunMismatchError],
    BY_ERROR[errors.CapacityError],
    BY_ERROR[errors.NotYetError],
    BY_ERROR[errors.NodeDrainingError],
    _AWAY,
)


class _Table(NamedTuple):
    """A form in which all targets of a run are one file."""

    media_type: bytes
    content_type: bytes
    suffix: str
    write: Callable[[Sequence[TargetRow]], bytes]


_TABLES: Final = (
    _Table(fleet_csv.MEDIA_TYPE, b"text/csv; charset=utf-8", "csv", fleet_csv.targets_csv),
    _Table(fleet_parquet.MEDIA_TYPE, fleet_parquet.MEDIA_TYPE, "parquet", fleet_parquet.targets_parquet),
)


class _Bridge:
    """Fleet runs, for one caller."""

    def __init__(self, plane: FleetPlane, asker: Asker, ports: NodePorts) -> None:
        self.plane = plane
        self.runs = plane.administration
        self.owner = asker.run_owner()
        self._audit = ports.audit
        self.admit = ports.node.member.admit

    async def change(self, run_id: str, done: str, change: Callable[[FleetRun, int], None]) -> Reply:
        """Change the state of a run, and put it on record."""
        self.check_audit()
        known = await self.runs.change(self.owner.tenant, run_id, change)
        self.note(known, done)
        return _json(run_json(known))

    def check_audit(self) -> None:
        """Return where what the caller is about to do can be put on record."""
        if self._audit is not None:
            self._audit.check()

    def note(self, known: KnownRun, done: str) -> None:
        """Put on record what the caller has done with a run."""
        if self._audit is not None:
            self._audit.fleet_run(known.record.run_id, known.plan.tenant, done, known.plan.command.method)


async def _bridge(ports: NodePorts, asker: WhoAsks) -> _Bridge:
    asker.check_own(Action.FLEET)
    return _Bridge(ports.fleets, asker, ports)


_OnBridge = Annotated[_Bridge, Depends(_bridge)]


@router.post(
    "",
    status_code=202,
    summary="Begin a fleet run",
    response_model=models.FleetRunView,
    response_description="The run, whose targets are frozen. Follow it at `Location`.",
    responses={
        200: {"description": "With `dry_run`: what the run would be. Nothing was begun.", "model": models.DryFleetRun},
        202: dict(_BEGUN),
        **problems_of(*_NOT_BEGUN),
    },
    openapi_extra={"requestBody": {"required": True, "content": json_of(models.FleetRunBody)}, **_MAY},
)
async def begin_fleet_run(
    request: Request,
    bridge: _OnBridge,
    bodies: FleetBodies,
    body: Annotated[JsonValue, Body()],
    *,
    dry_run: DryRunFlag = False,
    idempotency_key: _Key = None,
) -> Reply:
    """Sends one command to many devices, wave after wave. The caller needs `fleet`, and `send` for each target.

    The right to send is judged again for each command when it leaves.
    """
    check_names(request, ("dry_run",))
    check_readable(request)
    asked = bodies.read(body)
    if dry_run:
        found = await bridge.runs.choose(asked, bridge.owner)
        ends = asked.spec(0).wave_ends(len(found))
        return _json(
            {
                "total": len(found),
                "devices": [one.device_id for one in found[:SHOWN_DRY]],
                "waves": [end - begin for begin, end in zip([0, *ends], ends, strict=False)],
            }
        )
    bridge.admit()
    bridge.check_audit()
    known, replayed = await bridge.runs.create(asked, bridge.owner, idempotency_key)
    if not replayed:
        bridge.note(known, "begin")
    return _begun(request, known, replayed=replayed)


@router.get(
    "",
    summary="List fleet runs, newest first",
    response_model=models.FleetRunPage,
    response_description="A page of runs.",
    responses=problems_of(problems.INVALID, _AWAY),
    openapi_extra=_MAY,
)
async def list_fleet_runs(
    request: Request, bridge: _OnBridge, asker: WhoAsks, limit: ListLimit = MOST_LISTED, cursor: ListCursor = None
) -> Reply:
    """Lists the runs of the caller's tenant: those that have not ended, and those that ended within a week."""
    check_names(request, ("limit", "cursor"))
    known = await bridge.runs.all(bridge.owner.tenant)
    page = Listing("fleet runs", limit, cursor)
    found, behind = page.part(asker.cursors, known, lambda one: f"{2**63 - one.record.created_at} {one.record.run_id}")
    return _json({"runs": [run_json(one) for one in found], "cursor": behind})


@router.get(
    "/{run_id}",
    summary="Read a fleet run",
    response_model=models.FleetRunView,
    response_description="The run as it stands.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def read_fleet_run(run_id: _Id, bridge: _OnBridge) -> Reply:  # noqa: D103 - its summary says it
    return _json(run_json(await bridge.runs.get(bridge.owner.tenant, run_id)))


def _state(text: str) -> str:
    if text not in MARK_OF_WORD:
        raise InvalidInputError("state", f"{text[:32]!a} is none; allowed: {', '.join(MARK_OF_WORD)}")
    return text


def _index(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_TARGETS)):
        return int(text)
    raise InvalidInputError("cursor", "is none that a page of these targets gave")


@router.get(
    "/{run_id}/targets",
    summary="List the targets of a fleet run",
    response_model=models.FleetTargetPage,
    response_description="A page of targets, in the order of their turns; all of them as CSV or Parquet.",
    responses={200: {"content": {"text/csv": {}, fleet_parquet.MEDIA_TYPE.decode(): {}}}, **problems_of(*_OF_ONE)},
    openapi_extra=_MAY,
)
async def list_fleet_targets(
    request: Request,
    run_id: _Id,
    bridge: _OnBridge,
    asker: WhoAsks,
    state: Annotated[
        models.TargetState | SkipJsonSchema[None],
        BeforeValidator(_state),
        Query(description="Return only targets in this state.", examples=["failed"]),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: ListCursor = None,
) -> Reply:
    """Lists the targets that the caller may read, each with its command.

    With `Accept: text/csv`, or that of Parquet, all of them are one table, without pages, and `limit` and `cursor` are
    refused. Text of CSV that a spreadsheet would take for a formula has an apostrophe in front. Parquet takes the extra
    `homing[latency]`.
    """
    accept = headers_of(request.scope).get(b"accept")
    table = next((one for one in _TABLES if accepts(accept, one.media_type)), None)
    check_names(request, ("state", "limit", "cursor") if table is None else ("state",))
    kind = f"targets of {run_id}"
    after = -1 if cursor is None else _index(asker.cursors.take(kind, cursor))
    known = await bridge.runs.get(bridge.owner.tenant, run_id)
    mark = None if state is None else mark_of_word(state)
    if table is not None:
        rows = await bridge.runs.all_targets(known, mark, asker.may_know)
        return _file(run_id, table, await asyncio.to_thread(table.write, rows))
    page, last = await bridge.runs.targets(known, mark, after, limit, asker.may_know)
    behind = None if last is None else asker.cursors.give(kind, str(last), MOST_PLACE)
    return _json({"targets": [target_json(one) for one in page], "cursor": behind})


@router.get(
    "/{run_id}/explain",
    summary="Explain why a fleet run stands",
    response_model=models.FleetExplanation,
    response_description="The reason why it stands or goes on, the state of its rules, and what has failed.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def explain_fleet_run(run_id: _Id, bridge: _OnBridge, asker: WhoAsks) -> Reply:
    """Looks at up to a thousand targets in flight, and at up to a thousand of those that failed.

    `failures` are of targets that the caller may read.
    """
    known = await bridge.runs.get(bridge.owner.tenant, run_id)
    return _json(explanation_json(known, await bridge.plane.explainer.explain(known, asker.may_know)))


_CHANGED: Final = problems_of(BY_ERROR[errors.RunStateError], *_OF_ONE)


@router.post(
    "/{run_id}/pause",
    summary="Pause a fleet run",
    response_model=models.FleetRunView,
    response_description="The paused run.",
    responses=_CHANGED,
    openapi_extra=_MAY,
)
async def pause_fleet_run(run_id: _Id, bridge: _OnBridge) -> Reply:
    """Nothing more is handed out once this is answered. What was handed out before goes on."""
    return await bridge.change(run_id, "pause", lambda run, now: run.pause(now, bridge.owner.principal))


@router.post(
    "/{run_id}/resume",
    summary="Resume a fleet run",
    response_model=models.FleetRunView,
    response_description="The run, which goes on.",
    responses=_CHANGED,
    openapi_extra=_MAY,
)
async def resume_fleet_run(run_id: _Id, bridge: _OnBridge, body: models.ResumeBody | None = None) -> Reply:
    """Lets a paused run go on, also one that waits between two waves. `409` while a stop rule holds.

    Where a wave says `then: "approve"`, only another person goes on than the one who began the run: they need
    `approve` for each target, too. With `forgive`, what has failed so far counts for no rule any more.
    """
    forgive, by = body is not None and body.forgive, bridge.owner.principal
    approved = await bridge.runs.approves(bridge.owner, run_id)
    return await bridge.change(
        run_id,
        "resume" if approved is None else "approve",
        lambda run, now: run.resume(now, by, forgive=forgive, approved=approved),
    )


@router.post(
    "/{run_id}/abort",
    summary="Abort a fleet run",
    response_model=models.FleetRunView,
    response_description="The run, which ends.",
    responses=_CHANGED,
    openapi_extra=_MAY,
)
async def abort_fleet_run(run_id: _Id, bridge: _OnBridge, body: models.AbortBody | None = None) -> Reply:
    """Targets that had no turn are skipped. The run has ended when the last open command has."""
    cancel = body is not None and body.open == "cancel"
    return await bridge.change(run_id, "abort", lambda run, now: run.abort(now, bridge.owner.principal, cancel=cancel))


@router.post(
    "/{run_id}/retry",
    status_code=202,
    summary="Retry the targets of a fleet run that did not succeed",
    response_model=models.FleetRunView,
    response_description="The new run, whose targets are frozen. Follow it at `Location`.",
    responses={202: dict(_BEGUN), **problems_of(BY_ERROR[errors.RunNotFoundError], *_NOT_BEGUN)},
    openapi_extra=_MAY,
)
async def retry_fleet_run(
    request: Request,
    run_id: _Id,
    bridge: _OnBridge,
    *,
    body: models.RetryBody | None = None,
    idempotency_key: _Key = None,
) -> Reply:
    """Begins a new run of exactly those targets, in their order, with the command, waves, rules and bounds of this one.

    It begins now, and may last as long. The caller needs `fleet`, and `send` for each of them. This run stays as it is.
    """
    bridge.admit()
    bridge.check_audit()
    of = (body or models.RetryBody()).of
    known, replayed = await bridge.runs.retry(run_id, of, bridge.owner, idempotency_key)
    if not replayed:
        bridge.note(known, "retry")
    return _begun(request, known, replayed=replayed)


def _begun(request: Request, known: KnownRun, *, replayed: bool) -> Reply:
    path = f"{request.scope.get('root_path', '')}/v1/fleet-runs/{known.record.run_id}"
    extra = [(b"location", path.encode()), *([(b"idempotent-replayed", b"true")] if replayed else [])]
    return BytesResponse(orjson.dumps(run_json(known)), status=202, headers=extra)


def _file(run_id: str, table: _Table, content: bytes) -> Reply:
    name = f'attachment; filename="{run_id}.{table.suffix}"'.encode()
    extra = [(b"content-disposition", name), (b"vary", b"accept")]
    return BytesResponse(content, content_type=table.content_type, headers=extra)


def _json(content: dict[str, Any]) -> Reply:
    return BytesResponse(orjson.dumps(content))
