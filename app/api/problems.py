"""Errors as RFC 9457 `application/problem+json`: which status each one has, and what the caller is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Final

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from app.api.faults import faults_of
from app.api.http import PROBLEM_JSON, BytesResponse, EncodedBodyError, SlowBodyError
from app.api.representation import command_json
from app.commands.send.unsent import DEVICE_OFFLINE, NO_SUBSCRIBER
from app.core import errors
from app.core.commands.command import Command
from app.core.payload import MAX_BYTES, MAX_DEPTH
from app.runtime.telemetry import Counters

CLIENT_GONE: Final = 499
"""The status that a log shows for a caller that hung up; nobody receives it. (nginx made this number known.)"""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A kind of problem. `retry_after` is in seconds; `hang_up` closes the connection: a body may still be coming."""

    slug: str
    title: str
    status: int
    retry_after: int | None = None
    hang_up: bool = False

    @property
    def uri(self) -> str:
        """The URI that identifies the problem for ever."""
        return f"urn:homing:problem:{self.slug}"


UNREADABLE_REQUEST: Final = ProblemType("unreadable-request", "The request is not HTTP/1.1", 400, hang_up=True)
ORIGIN_NOT_ALLOWED: Final = ProblemType("origin-not-allowed", "Pages of this origin may not call this node", 403)
PASSED_ON: Final = ProblemType("passed-on", "This node is open to its own machine alone", 403)
NOT_FOUND: Final = ProblemType("not-found", "There is no such resource", 404)
NO_PROFILE: Final = ProblemType("profile-not-found", "There is no such profile", 404)
METHOD_NOT_ALLOWED: Final = ProblemType("method-not-allowed", "This method is not allowed here", 405)
SLOW_HEAD: Final = ProblemType("slow-head", "The head of the request did not arrive in time", 408, hang_up=True)
SLOW_BODY: Final = ProblemType("slow-body", "The body did not arrive in time", 408, hang_up=True)
TARGET_TOO_LONG: Final = ProblemType("target-too-long", "The target of the request is too long", 414, hang_up=True)
NOT_JSON: Final = ProblemType("unsupported-media-type", "The body must be JSON", 415)
HOST_NOT_ALLOWED: Final = ProblemType("host-not-allowed", "This node does not serve the requested host", 421)
INVALID: Final = ProblemType("invalid-input", "A value is outside what is allowed", 422)
HEAD_TOO_LARGE: Final = ProblemType("head-too-large", "The head of the request is too large", 431, hang_up=True)
INTERNAL: Final = ProblemType("internal-error", "Homing has failed unexpectedly", 500)
TOO_MANY_CONNECTIONS: Final = ProblemType(
    "too-many-connections", "This node has as many connections as it may", 503, retry_after=1, hang_up=True
)
NOT_SENT: Final = ProblemType("not-sent", "The command was not sent", 503, retry_after=1)
NO_OUTCOME: Final = ProblemType("outcome-unknown", "The outcome could not be learned in time", 503, retry_after=1)
NOT_READY: Final = ProblemType("not-ready", "This node cannot serve now", 503, retry_after=1)
CONFLICT: Final = ProblemType("conflict", "A condition of the transaction does not hold", 409)
NOT_LISTENING: Final = ProblemType("device-not-listening", "Nobody is subscribed to the device's command topic", 409)
OFFLINE: Final = ProblemType("device-offline", "The device has said that it is offline", 409)
NOTHING_TO_LOG_IN_TO: Final = ProblemType("nothing-to-log-in-to", "This node does not authenticate its callers", 409)
TIMED_OUT: Final = ProblemType("timed-out", "No answer came before the deadline", 504)
UNAVAILABLE: Final = ProblemType("unavailable", "A service that this node needs is unavailable", 503, retry_after=1)
ACCESS_STORE_AWAY: Final = ProblemType("access-store-away", "The access directory is unavailable", 503, retry_after=1)
KEY_REUSED: Final = ProblemType("idempotency-key-reused", "The idempotency key belongs to a different call", 422)

BY_ERROR: Final[Mapping[type[errors.HomingError], ProblemType]] = MappingProxyType(
    {
        errors.HomingError: INTERNAL,
        errors.ConfigurationError: INTERNAL,
        errors.ForeignDirectoryError: INTERNAL,
        errors.InvalidInputError: INVALID,
        errors.PayloadTooLargeError: ProblemType("body-too-large", "The body is too large", 413, hang_up=True),
        errors.UnpublishableError: ProblemType("unpublishable", "MQTT cannot carry the command", 422),
        errors.PacketTooLargeError: ProblemType(
            "packet-too-large", "The MQTT broker takes no packet of this size", 413
        ),
        errors.UndecodableMessageError: ProblemType("unreadable-body", "The body cannot be read", 422),
        errors.CommandError: INTERNAL,
        errors.CommandNotFoundError: ProblemType("command-not-found", "There is no such command", 404),
        errors.UnreadableRecordError: ProblemType(
            "unreadable-record", "This node cannot read the command", 503, retry_after=1
        ),
        errors.CommandFinishedError: ProblemType("command-finished", "The command has an outcome already", 409),
        errors.ApprovalOverError: ProblemType("approval-over", "No second person is asked about this command", 409),
        errors.PreconditionRequiredError: ProblemType("precondition-required", "If-Match is needed", 428),
        errors.IdempotencyMismatchError: KEY_REUSED,
        errors.IllegalTransitionError: ProblemType(
            "illegal-transition", "The command's state does not allow this", 409
        ),
        errors.AccessError: INTERNAL,
        errors.UnauthenticatedError: ProblemType("unauthenticated", "This node requires authentication", 401),
        errors.ForbiddenError: ProblemType("forbidden", "The rules do not allow this", 403),
        errors.NeedsSecondPersonError: ProblemType("needs-second-person", "A second person must approve this", 403),
        errors.DeviceNotFoundError: ProblemType("device-not-found", "There is no such device", 404),
        errors.DirectoryError: INTERNAL,
        errors.EntryNotFoundError: NOT_FOUND,
        errors.EntryConflictError: ProblemType("entry-conflict", "The change conflicts with existing records", 409),
        errors.VersionConflictError: ProblemType("version-conflict", "The directory has changed meanwhile", 412),
        errors.PreconditionFailedError: ProblemType(
            "precondition-failed", "The record is not in the expected state", 412
        ),
        errors.NoDirectoryError: ProblemType("no-access-directory", "This node has no access directory", 404),
        errors.SchemaError: INTERNAL,
        errors.SchemaTooOldError: ACCESS_STORE_AWAY,
        errors.SchemaTooNewError: ACCESS_STORE_AWAY,
        errors.EventLogError: INTERNAL,
        errors.EventsOffError: ProblemType("no-events", "This node has no event log", 404),
        errors.DatabaseNotFoundError: ProblemType("database-not-found", "There is no such database of events", 404),
        errors.EventNotFoundError: ProblemType("event-not-found", "There is no such event", 404),
        errors.CursorNotFoundError: ProblemType("cursor-not-found", "There is no such cursor", 404),
        errors.ValueNotFoundError: ProblemType("value-not-found", "The topic has no value", 404),
        errors.ValueChangedError: ProblemType("value-changed", "The value has changed meanwhile", 412),
        errors.CallMismatchError: KEY_REUSED,
        errors.QuotaError: ProblemType("quota-exceeded", "The quota of the event log is used up", 507),
        errors.FencedError: INTERNAL,
        errors.DamagedEventsError: INTERNAL,
        errors.BrokerError: INTERNAL,
        errors.BrokerTakenOverError: INTERNAL,
        errors.BrokerOffError: ProblemType("no-broker", "This node has no broker of its own", 404),
        errors.BrokerEntryNotFoundError: ProblemType("not-in-broker", "The broker has nothing of this name", 404),
        errors.QueueError: INTERNAL,
        errors.QueuesOffError: ProblemType("no-queues", "This node keeps no queues", 404),
        errors.QueueNotFoundError: ProblemType("queue-not-found", "There is no such queue", 404),
        errors.QueueDiffersError: ProblemType("queue-differs", "The queue is declared otherwise", 409),
        errors.QueueNotEmptyError: ProblemType("queue-not-empty", "The queue is not empty", 409),
        errors.ExchangeNotFoundError: ProblemType("exchange-not-found", "There is no such exchange", 404),
        errors.ExchangeDiffersError: ProblemType("exchange-differs", "The exchange is of another kind", 409),
        errors.ExchangeInUseError: ProblemType("exchange-in-use", "Queues have routes from the exchange", 409),
        errors.UnroutedError: ProblemType("unrouted", "No queue has a route for this key", 422),
        errors.QueueChangedError: ProblemType("queue-changed", "Queues were changed meanwhile", 409),
        errors.FleetError: INTERNAL,
        errors.RunNotFoundError: ProblemType("run-not-found", "There is no such fleet run", 404),
        errors.NoTargetsError: ProblemType("no-targets", "No device is a target of the run", 422),
        errors.RunStateError: ProblemType("run-state", "The state of the run does not allow this", 409),
        errors.RunMismatchError: KEY_REUSED,
        errors.ScheduleNotFoundError: ProblemType("schedule-not-found", "There is no such schedule", 404),
        errors.HandlerFailedError: INTERNAL,
        errors.InterlockError: ProblemType("interlock", "An interlock does not let the command through", 409),
        errors.WebhooksOffError: ProblemType("webhooks-off", "This node serves no webhooks", 404),
        errors.WebhookNotFoundError: NOT_FOUND,
        errors.WebhookChangedError: ProblemType("webhook-changed", "The webhook was changed meanwhile", 409),
        errors.CapacityError: ProblemType("limit-reached", "A limit is reached", 429, retry_after=1),
        errors.RateLimitError: ProblemType("rate-limited", "The rules do not allow this so often", 429, retry_after=1),
        errors.TooManyOpenError: ProblemType(
            "too-many-open", "The rules do not allow so many open commands", 429, retry_after=1
        ),
        errors.TooManyHeldError: ProblemType(
            "too-many-held", "The device has too many held commands", 429, retry_after=10
        ),
        errors.DeviceBusyError: ProblemType("device-busy", "The device is busy with a command", 429, retry_after=1),
        errors.UnavailableError: UNAVAILABLE,
        errors.StoreUnavailableError: ProblemType(
            "store-unavailable", "The state store is unavailable", 503, retry_after=1
        ),
        errors.StoreRefusedError: ProblemType(
            "store-refused", "The store refused the call: its data or our rights are wrong", 503, retry_after=10
        ),
        errors.DirectoryUnavailableError: ACCESS_STORE_AWAY,
        errors.BrokerUnavailableError: ProblemType(
            "broker-unavailable", "The MQTT broker is unavailable", 503, retry_after=1
        ),
        errors.PublishRefusedError: ProblemType(
            "publish-refused", "The MQTT broker refused the command", 503, retry_after=1
        ),
        errors.PublishUnconfirmedError: ProblemType(
            "publish-unconfirmed", "The command may or may not have been sent", 503, retry_after=1
        ),
        errors.InterlockBlindError: ProblemType(
            "interlock-blind", "The values that interlocks judge by cannot be read", 503, retry_after=1
        ),
        errors.NotYetError: ProblemType(
            "not-yet", "A node of the cluster does not know held commands yet", 503, retry_after=10
        ),
        errors.NodeDrainingError: ProblemType("node-draining", "This node is about to stop", 503, retry_after=1),
        errors.NodeIdTakenError: UNAVAILABLE,
    }
)
"""Every error class, none by inheritance: a new one must be thought about."""

_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="homing"'),)
"""RFC 6750, section 3."""

UNSENT_BY_CODE: Final[Mapping[str, ProblemType]] = MappingProxyType(
    {one.code: BY_ERROR[one] for one in (errors.UnpublishableError, errors.PacketTooLargeError)}
    | {NO_SUBSCRIBER: NOT_LISTENING, DEVICE_OFFLINE: OFFLINE}
)
"""The problem of an unsent command, by the error code on its record; NOT_SENT for any other."""

UNREADABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "duplicate_key": "an object has the same key twice",
        "empty": "it is empty; a JSON object is needed",
        "lone_surrogate": "a string has half of a surrogate pair, which is no character",
        "not_a_number": "NaN and Infinity are not JSON",
        "not_json": "it is not JSON (RFC 8259)",
        "not_utf8": "it is not UTF-8",
        "number_out_of_range": "a number is out of range; allowed: integers from -2^63 to 2^64-1 and finite floats",
        "too_deep": f"arrays and objects are nested too deep; allowed: {MAX_DEPTH} levels",
        "too_large": f"it is too large; allowed: at most {MAX_BYTES} bytes",
    }
)
"""The reasons of decode_json as sentences."""


def problem(
    kind: ProblemType, detail: str, headers: Iterable[tuple[bytes, bytes]] = (), **facts: object
) -> BytesResponse:
    """The response that tells a caller of a problem; `facts` that are None are left out."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    body = orjson.dumps({"type": kind.uri, "title": kind.title, "status": kind.status, "detail": detail, **known})
    all_headers = [*headers]
    if kind.retry_after is not None:
        all_headers.append((b"retry-after", b"%d" % kind.retry_after))
    if kind.hang_up:
        all_headers.append((b"connection", b"close"))
    return BytesResponse(body, status=kind.status, content_type=PROBLEM_JSON, headers=all_headers)


def of_command(
    kind: ProblemType,
    detail: str,
    command: Command,
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    root: str = "",
    **facts: object,
) -> BytesResponse:
    """The problem with a command that is on record: with the command, and where to read it."""
    return problem(
        kind,
        detail,
        [*headers, location_of(command.id, root)],
        command_id=command.id,
        command=orjson.Fragment(command_json(command)),
        **facts,
    )


def location_of(command_id: str, root: str) -> tuple[bytes, bytes]:
    """The header that tells where to read a command; `root` is the path below which the API is served."""
    return b"location", f"{root}/v1/commands/{command_id}".encode()


def of_error(error: errors.HomingError, root: str = "") -> Response:
    """The problem that an error of ours is to a caller."""
    kind = BY_ERROR.get(type(error), INTERNAL)
    detail = str(error) if kind is not INTERNAL else "the request could not be served"
    faults = None
    if isinstance(error, errors.InvalidInputError):
        faults = [{"field": error.field, "reason": error.reason}]
    elif isinstance(error, errors.UndecodableMessageError):
        reason = UNREADABLE.get(error.reason, error.reason)
        detail = f"body: {reason}"
        faults = [{"field": "body", "reason": reason}]
    state = error.state if isinstance(error, errors.CommandFinishedError) else None
    command = getattr(error, "command", None)
    if isinstance(command, Command):
        return of_command(kind, detail, command, root=root, errors=faults)
    headers: Iterable[tuple[bytes, bytes]] = _CHALLENGE if isinstance(error, errors.UnauthenticatedError) else ()
    if isinstance(error, errors.RateLimitError):
        kind = replace(kind, retry_after=ceil(error.retry_after))
        headers = _rate_limit(error)
    identity = getattr(error, "command_id", None)
    if identity is not None and isinstance(error, errors.StoreUnavailableError):  # it may be on record all the same
        headers = [location_of(identity, root)]
    interlocks = error.interlocks if isinstance(error, errors.InterlockError) else None
    return problem(kind, detail, headers, command_id=identity, state=state, errors=faults, interlocks=interlocks)


def _rate_limit(error: errors.RateLimitError) -> Iterable[tuple[bytes, bytes]]:
    """draft-ietf-httpapi-ratelimit-headers-10: what the rules allow, and that nothing is left."""
    if not error.policies:
        return ()
    policies = ", ".join(f'"{error.name}";q={count};w={seconds}' for count, seconds in error.policies)
    left = f'"{error.name}";r=0;t={ceil(error.retry_after)}'
    return ((b"ratelimit-policy", policies.encode()), (b"ratelimit", left.encode()))


def answer_to(error: Exception, counters: Counters, root: str = "") -> Response:
    """The answer to a caller whose request ended with this error; `root` is the path below which the API is served."""
    match error:
        case errors.HomingError():
            counters[f"refused.{BY_ERROR.get(type(error), INTERNAL).slug}"] += 1
            return of_error(error, root)
        case SlowBodyError():
            return problem(SLOW_BODY, str(error))
        case EncodedBodyError():
            return problem(NOT_JSON, str(error), [(b"accept-encoding", b"identity")])
        case ClientDisconnect():
            return Response(status_code=CLIENT_GONE)
        case _:
            return problem(INTERNAL, "the request could not be served; the node's log says why")


def is_mistake(error: Exception) -> bool:
    """True if the error is of a kind that nobody has thought of: it belongs in the log."""
    return not isinstance(error, errors.HomingError | SlowBodyError | EncodedBodyError | ClientDisconnect)


def install(application: FastAPI, counters: Counters) -> None:
    """Answer every error of the application with a problem."""

    async def answer(request: Request, error: Exception) -> Response:
        return answer_to(error, counters, request.scope.get("root_path", ""))

    async def http_exception(request: Request, error: Exception) -> Response:
        return _of_framework(request, error, application.routes)

    for kind in (errors.HomingError, SlowBodyError, EncodedBodyError, ClientDisconnect, Exception):
        application.add_exception_handler(kind, answer)
    application.add_exception_handler(HTTPException, http_exception)
    application.add_exception_handler(RequestValidationError, _validation_error)


def _of_framework(request: Request, error: Exception, routes: Iterable[BaseRoute]) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    if error.status_code == NOT_FOUND.status:
        return problem(NOT_FOUND, "no such path; /openapi.json lists all of them", headers)
    if error.status_code == METHOD_NOT_ALLOWED.status:
        allowed = ", ".join(sorted(_methods_of(request, routes)))
        detail = f"{request.method[:16]!a} is not allowed here; allowed: {allowed}"
        return problem(METHOD_NOT_ALLOWED, detail, [(b"allow", allowed.encode())])
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI could not read the body at all: it is not UTF-8, say
        return _unreadable("body", "it is not JSON (RFC 8259)")
    # RFC 9457, 4.2.1: about:blank when the status code says it all.
    title = HTTPStatus(error.status_code).phrase
    body = orjson.dumps({"type": "about:blank", "title": title, "status": error.status_code, "detail": error.detail})
    return BytesResponse(body, status=error.status_code, content_type=PROBLEM_JSON, headers=headers)


def _methods_of(request: Request, routes: Iterable[BaseRoute]) -> set[str]:
    """The methods of all routes that have this path, of which the framework names only the first."""
    return {
        method
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


def _unreadable(field: str, reason: str) -> Response:
    return problem(INVALID, f"{field}: {reason}", errors=[{"field": field, "reason": reason}])


async def _validation_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = [one._asdict() for one in faults_of(error.errors())]
    return problem(INVALID, "; ".join(f"{one['field']}: {one['reason']}" for one in faults), errors=faults)
