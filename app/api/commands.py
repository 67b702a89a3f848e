"""Commands over HTTP: send, read, list, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from app.api import problems
from app.api.http import BytesResponse, headers_of, read_body
from app.api.parking import DismissedError, Parking
from app.api.preferences import Preference, read_preference
from app.api.problems import problem
from app.api.representation import command_json, json_or_none, page_json
from app.commands.invoker import CommandRequest
from app.core.command import Command, CommandState
from app.core.deadlines import LearnedTimeouts
from app.core.durations import ALLOWED, format_duration, parse_duration
from app.core.errors import CommandFinishedError, CommandNotFoundError, InvalidInputError
from app.core.identifiers import validate_command_id, validate_device_id, validate_idempotency_key, validate_method
from app.core.payload import JsonValue, decode_json
from app.node import Node
from app.settings import Settings
from app.store.base import Query

MEMBERS: Final = ("method", "params", "timeout", "profile", "one_way")
FILTERS: Final = ("device", "state", "limit", "cursor")
SHORTEST_TIMEOUT: Final = timedelta(milliseconds=1)
DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
SWEEP_GRACE: Final = timedelta(milliseconds=500)

_MISSING: Final = object()


class Commands:
    """The endpoints. `parking` holds the callers that wait; `learned` knows timeouts for those who give none."""

    def __init__(self, node: Node, settings: Settings, parking: Parking, learned: LearnedTimeouts) -> None:
        self._node = node
        self._parking = parking
        self._profile = settings.profile
        self._learned = learned
        self._default_timeout = settings.command.default_timeout
        self._max_timeout = settings.command.max_timeout
        # After the deadline the outcome still has to be recorded, by another node where the home node died, and its
        # wake-up may be lost: then the sweep over parked callers finds it.
        self._grace = settings.store.budget + 2 * settings.cluster.sweep_interval + SWEEP_GRACE

    async def send(self, request: Request) -> Response:
        """`POST /v1/devices/{device_id}/commands`."""
        device_id = validate_device_id(request.scope["path_params"]["device_id"])
        headers = headers_of(request)
        refusal = _media_type_refusal(headers)
        if refusal is not None:
            return refusal
        key = headers.get(b"idempotency-key")
        preference = read_preference(headers.get(b"prefer"))
        body = decode_json(await read_body(request, headers))
        asked = self._read(device_id, body, key)
        longest = asked.timeout + self._grace
        budget = longest if preference.limit is None else min(preference.limit, longest)
        invocation = await self._node.invoker.invoke(asked, park=bool(budget))
        command, dismissed = invocation.command, False
        if budget and not command.state.final:
            try:
                command = await self._parking.wait(invocation, budget, request.receive)
            except DismissedError:
                dismissed = True
        extra = [(b"idempotent-replayed", b"true")] if invocation.replayed else []
        if command.state.final:
            return _outcome(command, preference, extra)
        if dismissed or budget < longest:
            return _accepted(request, command, preference, extra)
        detail = f"command {command.id} is past its deadline and the store did not say what became of it; read it later"
        return problem(problems.NO_OUTCOME, detail, extra, command_id=command.id)

    async def read(self, request: Request) -> Response:
        """`GET /v1/commands/{id}`."""
        return BytesResponse(command_json(await self._get(validate_command_id(request.path_params["command_id"]))))

    async def list(self, request: Request) -> Response:
        """`GET /v1/commands`."""
        query = _read_query(request.query_params.multi_items())
        return BytesResponse(page_json(await self._node.store.list_commands(query)))

    async def cancel(self, request: Request) -> Response:
        """`DELETE /v1/commands/{id}`."""
        command_id = validate_command_id(request.path_params["command_id"])
        finished = await self._node.invoker.cancel(command_id)
        if not finished.won:
            raise CommandFinishedError(command_id, finished.outcome.state)
        return BytesResponse(command_json(await self._get(command_id)))

    async def _get(self, command_id: str) -> Command:
        (command,) = await self._node.store.get([command_id])
        if command is None:
            raise CommandNotFoundError(command_id)
        return command

    def _read(self, device_id: str, body: JsonValue, key: bytes | None) -> CommandRequest:
        """What a caller asks for; InvalidInputError says what is wrong with it."""
        if not isinstance(body, dict):
            raise InvalidInputError("body", f"is {_kind(body)}; a JSON object is needed")
        for name in body:
            if name not in MEMBERS:
                raise InvalidInputError(
                    name[:64].encode("ascii", "backslashreplace").decode(), f"is unknown; {_ALLOWED}"
                )
        method = validate_method(_text(body, "method"))
        profile = _text(body, "profile", self._profile)
        given = self._timeout(body.get("timeout", _MISSING))
        return CommandRequest(
            device_id=device_id,
            method=method,
            params=body.get("params", {}),
            timeout=given or self._usual_timeout(profile, method, device_id),
            timeout_given=given is not None,
            profile=profile,
            one_way=_flag(body, "one_way"),
            idempotency_key=None if key is None else validate_idempotency_key(key.decode("latin-1")),
        )

    def _usual_timeout(self, profile: str, method: str, device_id: str) -> timedelta:
        """For a caller who gives none: what was learned, within the bounds, else the default."""
        learned = self._learned.timeout(profile, method, device_id)
        return self._default_timeout if learned is None else min(learned, self._max_timeout)

    def _timeout(self, value: object) -> timedelta | None:
        if value is _MISSING:
            return None
        if not isinstance(value, str):
            hint = (
                ": a bare number has no unit" if isinstance(value, int | float) and not isinstance(value, bool) else ""
            )
            raise InvalidInputError("timeout", f"is {_kind(value)}{hint}; allowed: a string of {ALLOWED}")
        try:
            timeout = parse_duration(value)
        except ValueError as error:
            raise InvalidInputError("timeout", str(error)) from None
        if not SHORTEST_TIMEOUT <= timeout <= self._max_timeout:
            low, high = format_duration(SHORTEST_TIMEOUT), format_duration(self._max_timeout)
            raise InvalidInputError("timeout", f"{value} is out of range; allowed: {low} to {high}")
        return timeout


_ALLOWED: Final = f"allowed: {', '.join(MEMBERS)}"


def _kind(value: object) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _text(body: Mapping[str, JsonValue], name: str, default: str | None = None) -> str:
    value = body.get(name, _MISSING)
    if isinstance(value, str):
        return value
    if value is not _MISSING:
        raise InvalidInputError(name, f"is {_kind(value)}; a string is needed")
    if default is None:
        raise InvalidInputError(name, "is missing; a string is needed")
    return default


def _flag(body: Mapping[str, JsonValue], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInputError(name, f"is {_kind(value)}; true or false is needed")
    return value


def _media_type_refusal(headers: Mapping[bytes, bytes]) -> Response | None:
    """The problem with a body that is not announced as JSON.

    A page in a browser can send other types to any host without asking first, so only `application/json` counts there;
    a client that names no type must be something else than a browser, which names its `Origin`.
    """
    given = headers.get(b"content-type")
    if given is None:
        if b"origin" not in headers:
            return None
        return problem(problems.NOT_JSON, "a browser must send Content-Type: application/json", _ACCEPT)
    media_type = given.partition(b";")[0].strip().lower()
    if media_type == b"application/json" or (media_type.startswith(b"application/") and media_type.endswith(b"+json")):
        return None
    shown = ascii(media_type[:64].decode("latin-1"))
    return problem(problems.NOT_JSON, f"{shown} is not JSON; allowed: application/json, application/*+json", _ACCEPT)


_ACCEPT: Final = [(b"accept", b"application/json, application/*+json")]


def _outcome(command: Command, preference: Preference, extra: list[tuple[bytes, bytes]]) -> Response:
    """Outcomes are data, so a device's refusal is 200; but with 504 nothing was answered, with 503 nothing sent."""
    if preference.wait is not None:
        extra.append((b"preference-applied", Preference(wait=preference.wait).applied))
    if command.state is CommandState.TIMED_OUT:
        detail = f"device {command.device_id} did not answer command {command.id} before its deadline"
        return problem(problems.TIMED_OUT, detail, extra, command_id=command.id)
    if command.state is CommandState.UNSENT:
        detail = f"command {command.id} did not leave Homing; it is safe to send it again"
        return problem(problems.NOT_SENT, detail, extra, command_id=command.id, error=json_or_none(command.error))
    return BytesResponse(command_json(command), headers=extra)


def _accepted(request: Request, command: Command, preference: Preference, extra: list[tuple[bytes, bytes]]) -> Response:
    root: str = request.scope.get("root_path", "")
    extra.append((b"location", f"{root}/v1/commands/{command.id}".encode()))
    if preference.applied:
        extra.append((b"preference-applied", preference.applied))
    return BytesResponse(command_json(command), status=202, headers=extra)


def _read_query(items: list[tuple[str, str]]) -> Query:
    given: dict[str, str] = {}
    for name, value in items:
        if name not in FILTERS:
            shown = name[:64].encode("ascii", "backslashreplace").decode()
            raise InvalidInputError(shown, f"is unknown; allowed: {', '.join(FILTERS)}")
        if name in given:
            raise InvalidInputError(name, "is given twice; allowed: once")
        given[name] = value
    return Query(
        device_id=validate_device_id(given["device"]) if "device" in given else None,
        state=_state(given["state"]) if "state" in given else None,
        limit=_limit(given["limit"]) if "limit" in given else DEFAULT_LIMIT,
        cursor=given.get("cursor"),
    )


def _state(text: str) -> CommandState:
    try:
        return CommandState(text)
    except ValueError:
        raise InvalidInputError("state", f"{text[:32]!a} is none; allowed: {', '.join(CommandState)}") from None


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT)) and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise InvalidInputError("limit", f"{text[:32]!a} is out of range; allowed: 1 to {MAX_LIMIT}")
