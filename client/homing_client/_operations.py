"""The operations of the API as requests: no I/O, the same for both twins. `_answers` reads what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import Any, Final, Literal

from homing_client._wire import Request

JsonObject = dict[str, Any]
IfOffline = Literal["fail", "send", "hold"]

WAIT: Final = timedelta(seconds=20)
"""The time that one call waits for an outcome. A caller who waits longer asks again, so that a connection that died
unnoticed is noticed."""
MARGIN: Final = timedelta(seconds=10)
"""The time that a node may take to answer beyond that for which it was asked to wait."""

_UNITS: Final = (("h", 3_600_000), ("m", 60_000), ("s", 1000))
_PLACE: Final = ("database", "shard", "position")


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
    replaces: str | None,
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
    if replaces is not None:
        body["replaces"] = replaces
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
    return Request(
        "GET", "/v1/devices", query=query, repeated=[("label", f"{name}={value}") for name, value in labels.items()]
    )


def device(method: str, device_id: str, body: JsonObject | None = None, if_match: str | None = None) -> Request:
    """Read, put on record, or remove from it, what is known of a device."""
    path, template = {"device_id": device_id}, "/v1/devices/{device_id}"
    return Request(method, template, path=path) if method == "GET" else changed(method, template, path, body, if_match)


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
