"""The operations of the API as requests, and their answers as values: no I/O, the same for both twins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import Any, Final, Literal

from homing_client._errors import UnexpectedAnswerError, error_of
from homing_client._models import (
    OUTCOMES,
    Cluster,
    Command,
    CommandEvent,
    DeviceRecord,
    Entry,
    Happening,
    LogEvent,
    Me,
    Readiness,
    Tagged,
)
from homing_client._retry import retry_after
from homing_client._wire import Reply, Request, ServerEvent

JsonObject = dict[str, Any]
IfOffline = Literal["fail", "send", "hold"]

WAIT: Final = timedelta(seconds=20)
"""How long one call waits for an outcome. A caller who waits longer asks again, so that a connection that died
unnoticed is noticed."""
MARGIN: Final = timedelta(seconds=10)
"""How much longer than it was asked to wait a node may take to answer."""

_UNITS: Final = (("h", 3_600_000), ("m", 60_000), ("s", 1000))
_PLACE: Final = ("database", "shard", "position")
_NOT_READY: Final = 503


def duration(value: timedelta | str) -> str:
    """As the API writes it: `500ms`, `10s`, `1.5m`. Text is left as it is; the node says what is wrong with it."""
    if isinstance(value, str):
        return value
    milliseconds = round(value / timedelta(milliseconds=1))
    for unit, size in _UNITS:
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def place_of(text: str) -> dict[str, str]:
    """The parts of `telemetry.2.1772352000000000`, where an event is; ValueError."""
    parts = text.split(".")
    if len(parts) != len(_PLACE):
        raise ValueError(f"place: {text[:64]!a} is none of an event; allowed: database.shard.position")
    return dict(zip(_PLACE, parts, strict=True))


def send(  # noqa: PLR0913 - each is a member of the body or a header
    device_id: str,
    method: str,
    params: Any,  # noqa: ANN401 - any JSON value
    *,
    key: str,
    wait: bool | timedelta,
    profile: str | None,
    timeout: timedelta | str | None,
    one_way: bool,
    if_offline: IfOffline | None,
    hold: timedelta | str | None,
    not_before: datetime | str | None,
    notify: Sequence[str],
) -> Request:
    """Send a command. The key makes it safe to send this again."""
    body: JsonObject = {"method": method}
    if params is not None:
        body["params"] = params
    if profile is not None:
        body["profile"] = profile
    if timeout is not None:
        body["timeout"] = duration(timeout)
    if one_way:
        body["one_way"] = True
    if if_offline is not None:
        body["if_offline"] = if_offline
    if hold is not None:
        body["hold"] = duration(hold)
    if not_before is not None:
        body["not_before"] = not_before if isinstance(not_before, str) else not_before.isoformat()
    if notify:
        body["notify"] = list(notify)
    most = {True: WAIT, False: timedelta()}[wait] if isinstance(wait, bool) else max(wait, timedelta())
    return Request(
        "POST",
        "/v1/devices/{device_id}/commands",
        path={"device_id": device_id},
        body=body,
        headers={"Idempotency-Key": key, "Prefer": f"wait={ceil(most.total_seconds())}" if most else "respond-async"},
        patience=(most + MARGIN).total_seconds(),
    )


def dry_run(sent: Request) -> Request:
    """Ask what would become of a command; `sent` is the request that would send it.

    The body says so as well: a node that knows no dry runs refuses it.
    """
    headers = {name: value for name, value in sent.headers.items() if name == "Idempotency-Key" and value}
    return replace(sent, query={"dry_run": "true"}, body={**sent.body, "dry_run": True}, headers=headers)


def command_sent(reply: Reply) -> Command:
    """The command that the answer to `send` tells of. Outcomes are values: also those that are problems in HTTP."""
    if reply.status < 400:  # noqa: PLR2004 - RFC 9110
        return Command.of(reply.json())
    command = reply.json().get("command") if reply.is_json else None
    if isinstance(command, Mapping) and command.get("state") in OUTCOMES:
        return Command.of(command)
    raise problem_of(reply)


def get(command_id: str) -> Request:
    """Read a command."""
    return Request("GET", "/v1/commands/{command_id}", path={"command_id": command_id})


def explain(command_id: str) -> Request:
    """Ask what became of a command. The node asks the others, half a second at most."""
    return Request("GET", "/v1/commands/{command_id}/explain", path={"command_id": command_id})


def cancel(command_id: str) -> Request:
    """Cancel a command. Sent twice, the second finds it cancelled, which is an error; so it is sent once."""
    return Request("DELETE", "/v1/commands/{command_id}", path={"command_id": command_id}, repeatable=False)


def probe(command_id: str) -> Request:
    """Look for a command that has timed out. To look again harms nothing."""
    return Request("POST", "/v1/commands/{command_id}/probe", path={"command_id": command_id}, repeatable=True)


def approvals(limit: int | None) -> Request:
    """List the commands that wait for a second person."""
    return Request("GET", "/v1/approvals", query={"limit": None if limit is None else str(limit)})


def approval(command_id: str) -> Request:
    """Show a command that waits for a second person."""
    return Request("GET", "/v1/commands/{command_id}/approvals", path={"command_id": command_id})


def decide(command_id: str, fingerprint: str, decision: str, note: str) -> Request:
    """Decide about a command as a second person. Sent twice, the second finds it decided; so it is sent once."""
    return Request(
        "POST",
        "/v1/commands/{command_id}/approvals",
        path={"command_id": command_id},
        headers={"If-Match": f'"{fingerprint}"'},
        body={"decision": decision, "note": note},
        repeatable=False,
    )


def resume_lane(device_id: str, lane: str) -> Request:
    """Have a lane of a device go on after a failure. Sent twice, the second changes nothing."""
    return Request("POST", "/v1/devices/{device_id}/lanes/{lane}/resume", path={"device_id": device_id, "lane": lane})


def page(filters: Mapping[str, str | None], cursor: str | None, limit: int | None) -> Request:
    """A page of commands, newest first."""
    return Request("GET", "/v1/commands", query={**filters, "limit": _number(limit), "cursor": cursor})


def page_of_device(device_id: str, filters: Mapping[str, str | None], cursor: str | None, limit: int | None) -> Request:
    """A page of the commands of a device, newest first."""
    query = {**filters, "limit": _number(limit), "cursor": cursor}
    return Request("GET", "/v1/devices/{device_id}/commands", path={"device_id": device_id}, query=query)


def devices(
    pattern: str | None,
    tenant: str | None,
    profile: str | None,
    labels: Mapping[str, str],
    cursor: str | None,
    *,
    heard: bool,
) -> Request:
    """A page of the devices that are on record, or with `heard` of all that anything is known of."""
    query = {"id": pattern, "tenant": tenant, "profile": profile, "cursor": cursor, "heard": "true" if heard else None}
    return Request("GET", "/v1/devices", query=query, repeated=[("label", f"{k}={v}") for k, v in labels.items()])


def device(method: str, device_id: str, body: JsonObject | None = None, if_match: str | None = None) -> Request:
    """Read, put on record, or remove from it, what is known of a device."""
    path, template = {"device_id": device_id}, "/v1/devices/{device_id}"
    return Request(method, template, path=path) if method == "GET" else changed(method, template, path, body, if_match)


def device_of(reply: Reply) -> DeviceRecord:
    """The device in an answer."""
    return DeviceRecord.of(body_of(reply), reply.headers.get("etag"))


def _condition(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def methods(profile: str) -> Request:
    """The catalogue of a profile."""
    return Request("GET", "/v1/profiles/{name}/methods", path={"name": profile})


def check_interlocks(device_id: str, method: str, profile: str | None) -> Request:
    """Ask how the interlocks of a method judge a device."""
    query = {"method": method, "profile": profile}
    return Request("GET", "/v1/devices/{device_id}/interlocks", path={"device_id": device_id}, query=query)


def given(**members: Any) -> JsonObject:
    """The members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def changed(
    method: str,
    template: str,
    path: Mapping[str, str],
    body: object,
    if_match: str | None,
    query: Mapping[str, str | None] = MappingProxyType({}),
) -> Request:
    """Put something on record, or take it from there. A PUT or PATCH without a condition may be sent twice."""
    repeatable = method in ("PUT", "PATCH") and if_match is None
    return Request(
        method, template, path=path, query=query, body=body, headers=_condition(if_match), repeatable=repeatable
    )


def listed(reply: Reply, member: str) -> list[JsonObject]:
    """All of a list that is not paged."""
    return list(body_of(reply).get(member) or ())


REMEMBERED = 10_000
"""Events that `Repeats` knows: ten times as many as a node may get again from the broker, as it is shipped."""


class Repeats:
    """Events that came before: the same topic, kind and id as one of the last REMEMBERED that have an id."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, object, object], None] = {}

    def has(self, event: Mapping[str, Any]) -> bool:
        """True if this event came before; it is known from now on."""
        if event.get("id") is None:
            return False
        key = (event.get("topic"), event.get("kind"), event["id"])
        there = key in self._known
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return there


def any_request(method: str, path: str, body: object, headers: Mapping[str, str]) -> Request:
    """A request as it is typed; ValueError when it has no path."""
    if not path.startswith("/"):
        raise ValueError(f"{path[:64]!a} is no path; allowed: /v1/…")
    verbatim = path.replace("{", "%7B").replace("}", "%7D")
    repeatable = method == "GET" or (method == "PUT" and not headers)
    return Request(method, verbatim, body=body, headers=headers, repeatable=repeatable)


def entry_of(reply: Reply) -> Entry:
    """The JSON of an answer and its tag; the error that it is."""
    nothing_of(reply)
    return anything_of(reply)


def anything_of(reply: Reply) -> Entry:
    """Return what `entry_of` does, of any operation: the value is None where the answer has no JSON."""
    if not reply.is_success:
        raise problem_of(reply)
    return Entry(reply.value() if reply.is_json and reply.content else None, reply.headers.get("etag"))


def tagged_of(reply: Reply) -> Tagged:
    """The object in an answer and its tag; the error that it is."""
    return Tagged(body_of(reply), reply.headers.get("etag"))


def login(name: str, password: str, tenant: str | None) -> Request:
    """Log in. Sent twice, it makes two keys; so it is sent once."""
    body = {"name": name, "password": password} | ({} if tenant is None else {"tenant": tenant})
    return Request("POST", "/v1/login", body=body, repeatable=False)


def events_of(command_id: str, *, to_the_end: bool) -> Request:
    """The request for the events of a command."""
    query = {"until": "retention" if to_the_end else None}
    return Request("GET", "/v1/commands/{command_id}/events", path={"command_id": command_id}, query=query)


def events_of_all(
    device: str | None, profile: str | None, method: str | None, states: Sequence[str], kinds: Sequence[str]
) -> Request:
    """The request for the events of all commands."""
    query = {
        "device": device,
        "profile": profile,
        "method": method,
        "state": ",".join(states) or None,
        "kind": ",".join(kinds) or None,
    }
    return Request("GET", "/v1/commands/events", query=query)


LOGOUT: Final = Request("DELETE", "/v1/login", repeatable=False)
PROFILES: Final = Request("GET", "/v1/profiles")
INTERLOCKS: Final = Request("GET", "/v1/interlocks")
NODES: Final = Request("GET", "/v1/nodes")
OVERVIEW: Final = Request("GET", "/v1/overview")
OVERVIEWS: Final = Request("GET", "/v1/overview/events")
ME: Final = Request("GET", "/v1/me")
INDEX: Final = Request("GET", "/")
HEALTH: Final = Request("GET", "/healthz")
READY: Final = Request("GET", "/readyz")
METRICS: Final = Request("GET", "/metrics", headers={"Accept": "text/plain"})


def command_of(reply: Reply) -> Command:
    """The command in an answer."""
    return Command.of(body_of(reply))


def cluster_of(reply: Reply) -> Cluster:
    """The cluster in an answer."""
    return Cluster.of(body_of(reply))


def me_of(reply: Reply) -> Me:
    """Read who the caller is."""
    return Me.of(body_of(reply))


def readiness_of(reply: Reply) -> Readiness:
    """Read whether a node can serve: an answer of 503 says that it cannot, and why."""
    if reply.status >= 400 and not (reply.status == _NOT_READY and reply.is_json):  # noqa: PLR2004 - RFC 9110
        raise problem_of(reply)
    body = reply.json()
    return Readiness(reply.status < 400, str(body.get("state")), body.get("checks") or {})  # noqa: PLR2004 - RFC 9110


def body_of(reply: Reply) -> JsonObject:
    """The object in an answer; the error that it is."""
    if not reply.is_success:
        raise problem_of(reply)
    return reply.json()


def text_of(reply: Reply) -> str:
    """The text of an answer; the error that it is."""
    if not reply.is_success:
        raise problem_of(reply)
    return reply.content.decode("utf-8", "replace")


def event_of(one: ServerEvent) -> CommandEvent | None:
    """Read a server-sent event about a command; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else CommandEvent.of(one.event, one.id, body)


def log_event_of(one: ServerEvent) -> LogEvent | None:
    """Read a server-sent event of the event log; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else LogEvent(one.event, one.id, body)


def heard_of(one: ServerEvent) -> JsonObject | None:
    """Read a server-sent event about the broker's traffic, with its `kind`; None for one of the connection alone."""
    body = _told(one)
    return None if body is None else {"kind": one.event, **body}


def overview_of(one: ServerEvent) -> JsonObject | None:
    """Read a server-sent event that is an overview; None for one that says that nothing is new."""
    body = _told(one)
    return body if one.event == "overview" else None


def happening_of(one: ServerEvent) -> Happening | None:
    """Read a server-sent event about any command; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else Happening.of(one.event, one.id, body)


def _told(one: ServerEvent) -> JsonObject | None:
    if not one.data:
        return None
    try:
        body = json.loads(one.data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UnexpectedAnswerError(f"an event {one.event[:32]!a} without a JSON object: that is no Homing node")
    if one.event == "problem":
        status = body.get("status")
        raise error_of(status if isinstance(status, int) else _NOT_READY, body)
    return body


def nothing_of(reply: Reply) -> None:
    """An answer that says no more than that it is done; the error that it is.

    A page of something in between, such as a login, says nothing of the kind.
    """
    if not reply.is_success or (reply.content and not reply.is_json):
        raise problem_of(reply)


def problem_of(reply: Reply) -> Exception:
    """The error that an answer is."""
    after = retry_after(reply.headers)
    if reply.is_json:
        return error_of(reply.status, reply.json(), after)
    if reply.status >= 500:  # noqa: PLR2004 - RFC 9110; a proxy answers for nodes that are away
        return error_of(reply.status, {"title": "something between here and the nodes answered"}, after)
    return UnexpectedAnswerError(f"HTTP {reply.status} without a problem in JSON: that is no Homing node")
