"""What `/openapi.json` says about each operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.api import problems, schemas
from app.api.commands import DEFAULT_LIMIT, MAX_LIMIT
from app.api.problems import BY_ERROR, ProblemType
from app.core import errors
from app.core.command import CommandState

Described = dict[str, Any]

_READ_FAILURES: Final = (BY_ERROR[errors.StoreUnavailableError],)
_CALL_FAILURES: Final = (
    BY_ERROR[errors.StoreUnavailableError],
    BY_ERROR[errors.BrokerUnavailableError],
    BY_ERROR[errors.NodeDrainingError],
)


def send() -> Described:
    """`POST /v1/devices/{device_id}/commands`."""
    command = _content("Command")
    return {
        "summary": "Send a command to a device",
        "description": (
            "Waits for the outcome, unless `Prefer` says otherwise. Outcomes are data: a device that refuses gives "
            "`200` with `state: failed`, a command that another caller cancelled meanwhile `200` with "
            "`state: cancelled`. A one-way command gives `200` with `state: succeeded` when the MQTT broker has "
            "acknowledged it."
        ),
        "tags": ["commands"],
        "parameters": [_DEVICE_ID, _PREFER, _IDEMPOTENCY_KEY],
        "requestBody": {"required": True, "content": _content("CommandBody")},
        "responses": {
            "200": {"description": "The command and its outcome.", "headers": _answer_headers(), "content": command},
            "202": {
                "description": "The command goes on: read it at `Location`. Also when the node is about to stop.",
                "headers": {"Location": _header("Where to read the command."), **_answer_headers()},
                "content": command,
            },
            **_problems(
                problems.SLOW_BODY,
                BY_ERROR[errors.PayloadTooLargeError],
                problems.NOT_JSON,
                problems.INVALID,
                BY_ERROR[errors.UndecodableMessageError],
                BY_ERROR[errors.IdempotencyMismatchError],
                BY_ERROR[errors.CapacityError],
                BY_ERROR[errors.DeviceBusyError],
                *_CALL_FAILURES,
                problems.NOT_SENT,
                problems.NO_OUTCOME,
                problems.TIMED_OUT,
            ),
        },
    }


def read() -> Described:
    """`GET /v1/commands/{command_id}`."""
    return {
        "summary": "Read a command, from any node",
        "tags": ["commands"],
        "parameters": [_COMMAND_ID],
        "responses": {
            "200": {"description": "The command as it stands.", "content": _content("Command")},
            **_problems(BY_ERROR[errors.CommandNotFoundError], problems.INVALID, *_READ_FAILURES),
        },
    }


def list_commands() -> Described:
    """`GET /v1/commands`."""
    return {
        "summary": "List commands, newest first",
        "tags": ["commands"],
        "parameters": [
            _query("device", "Only those of this device.", {"type": "string"}, schemas.DEVICE_ID),
            _query("state", "Only those in this state.", {"type": "string", "enum": [*CommandState]}, "failed"),
            _query(
                "limit",
                "How many at most.",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
                20,
            ),
            _query("cursor", "What the page before gave.", {"type": "string"}, None),
        ],
        "responses": {
            "200": {"description": "A page of commands.", "content": _content("CommandPage")},
            **_problems(problems.INVALID, *_READ_FAILURES),
        },
    }


def cancel() -> Described:
    """`DELETE /v1/commands/{command_id}`."""
    return {
        "summary": "Cancel a command",
        "description": "Its callers are told at once. The device is not: it may still act, and its response is `late`.",
        "tags": ["commands"],
        "parameters": [_COMMAND_ID],
        "responses": {
            "200": {"description": "The cancelled command.", "content": _content("Command")},
            **_problems(
                BY_ERROR[errors.CommandNotFoundError],
                BY_ERROR[errors.CommandFinishedError],
                problems.INVALID,
                BY_ERROR[errors.StoreUnavailableError],
                BY_ERROR[errors.NodeDrainingError],
            ),
        },
    }


def nodes() -> Described:
    """`GET /v1/nodes`."""
    return {
        "summary": "The cluster as this node sees it",
        "tags": ["cluster"],
        "responses": {
            "200": {"description": "Live nodes, and more about this one.", "content": _content("Nodes")},
            **_problems(*_READ_FAILURES),
        },
    }


def alive() -> Described:
    """`GET /healthz`."""
    return {
        "summary": "Liveness",
        "tags": ["health"],
        "responses": {"200": {"description": "The process runs.", "content": _content("Alive")}},
    }


def ready() -> Described:
    """`GET /readyz`."""
    return {
        "summary": "Readiness: whether callers should be sent to this node",
        "tags": ["health"],
        "responses": {
            "200": {"description": "It can serve.", "content": _content("Ready")},
            **_problems(problems.NOT_READY),
        },
    }


def metrics() -> Described:
    """`GET /metrics`."""
    text = {"schema": {"type": "string"}}
    return {
        "summary": "Metrics for Prometheus",
        "description": "In Prometheus' text format; in OpenMetrics when `Accept` names `application/openmetrics-text`.",
        "tags": ["health"],
        "responses": {
            "200": {
                "description": "All metrics of this node.",
                "content": {"text/plain": text, "application/openmetrics-text": text},
            }
        },
    }


def _ref(model: str) -> Mapping[str, str]:
    return {"$ref": f"#/components/schemas/{model}"}


def _content(model: str) -> Described:
    return {"application/json": {"schema": _ref(model)}}


def _problems(*kinds: ProblemType) -> Described:
    """One response for each status, with an example for each kind."""
    by_status: dict[str, list[ProblemType]] = {}
    for kind in (*kinds, problems.INTERNAL):
        by_status.setdefault(str(kind.status), []).append(kind)
    return {status: _problem_response(same) for status, same in sorted(by_status.items())}


def _problem_response(kinds: Iterable[ProblemType]) -> Described:
    examples = {
        kind.slug: {"value": {"type": kind.uri, "title": kind.title, "status": kind.status, "detail": kind.title}}
        for kind in kinds
    }
    headers = {"Retry-After": _header("Seconds.")} if any(kind.retry_after is not None for kind in kinds) else {}
    return {
        "description": "; ".join(kind.title for kind in kinds) + ".",
        "headers": headers,
        "content": {"application/problem+json": {"schema": _ref("Problem"), "examples": examples}},
    }


def _header(description: str) -> Described:
    return {"description": description, "schema": {"type": "string"}}


def _answer_headers() -> Described:
    return {
        "Idempotent-Replayed": _header("`true` when an earlier call with the same key began the command."),
        "Preference-Applied": _header("Which preferences decided the answer (RFC 7240)."),
    }


def _parameter(where: str, name: str, description: str, schema: Described, example: object) -> Described:
    described = {"name": name, "in": where, "required": where == "path", "description": description, "schema": schema}
    return described if example is None else described | {"example": example}


def _query(name: str, description: str, schema: Described, example: object) -> Described:
    return _parameter("query", name, description, schema, example)


_DEVICE_ID: Final = _parameter(
    "path",
    "device_id",
    "The device, as its profile puts it into topics.",
    {"type": "string", "pattern": r"^[A-Za-z0-9_.:\-]{1,128}$"},
    schemas.DEVICE_ID,
)
_COMMAND_ID: Final = _parameter("path", "command_id", "The command.", {"type": "string"}, schemas.COMMAND_ID)
_PREFER: Final = _parameter(
    "header",
    "Prefer",
    "RFC 7240. `respond-async`: answer `202` at once. `wait=N`: wait N seconds at most, then answer `202`.",
    {"type": "string"},
    "wait=5",
)
_IDEMPOTENCY_KEY: Final = _parameter(
    "header",
    "Idempotency-Key",
    "A repeated call with the same key and body joins the command, or gets its outcome again, from any node.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "8e03978e-40d5-43dd-bc93-6894a57f9324",
)
