"""The books of a node that is none, and its answers to requests. `homing_client.testing` puts them behind a socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Condition
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from homing_client import _system
from homing_client._models import OUTCOMES

_MANY: Final = 200
Said = tuple[int, dict[str, Any]]
_OWN_ERRORS: Final[Mapping[str, tuple[str, str]]] = {
    "timed_out": ("timed_out", "the device did not answer before the deadline"),
    "unsent": ("no_subscriber", "nobody is subscribed to the device's command topic"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a device to a method: it ends a command in this state, or leaves it open (`pending`)."""

    state: str = "succeeded"
    result: Any = None
    error: tuple[Any, str] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of a device by which a probe judges its commands; `state` is None of one that says nothing of them."""

    state: str | None
    topic: str
    value: Mapping[str, Any]


@dataclass(slots=True)
class Refusal:
    """An answer that the next requests get, whatever they ask."""

    status: int
    headers: Mapping[str, str]
    times: int


@dataclass(slots=True)
class Books:
    """The commands that were asked for so far, and their answers. Guarded by `changed`."""

    changed: Condition = field(default_factory=Condition)
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    to_lose: int = 0


def stamp() -> str:
    """Return this instant as answers have it."""
    return datetime.fromtimestamp(_system.wall(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def end(command: dict[str, Any], answer: Answer) -> None:
    """Let a command be as the answer of its device says."""
    told = answer.error or _OWN_ERRORS.get(answer.state)
    error = told and {"code": told[0], "message": told[1]}
    command |= {"state": answer.state, "result": answer.result, "error": error}
    if answer.state in OUTCOMES:
        command |= {"finished_at": stamp(), "progress": None, "last_progress": command["progress"]}


def problem(slug: str, status: int, detail: str, **facts: Any) -> Said:
    """Return the answer that a request is refused with."""
    return status, {"type": f"urn:homing:problem:{slug}", "title": slug, "status": status, "detail": detail, **facts}


def _answer_to(command: dict[str, Any]) -> Said:
    said = str((command["error"] or {}).get("message"))
    match command["state"]:
        case "timed_out":
            return problem("timed-out", 504, said, command_id=command["id"], command=command)
        case "unsent":
            return problem("device-not-listening", 409, said, command_id=command["id"], command=command)
        case state:
            return (200 if state in OUTCOMES else 202), command


def _send(books: Books, device: str, headers: Mapping[str, str], body: object) -> Said:
    if not isinstance(body, dict) or not isinstance(body.get("method"), str):
        return problem("invalid-input", 422, "method: is missing", errors=[{"field": "method", "reason": "missing"}])
    if body.get("dry_run"):
        known = any(name == device for name, _ in books.answers)
        return 200, {"dry_run": True, "would": "send" if known else "refuse", "device_id": device, **body}
    named = headers.get("idempotency-key")
    if named == "":
        errors = [{"field": "idempotency_key", "reason": "is empty"}]
        return problem("invalid-input", 422, "idempotency_key: is empty", errors=errors)
    key = (device, named or _system.new_key())
    if key not in books.keys:
        command = _new(len(books.commands), device, body)
        answer = books.answers.get((device, body["method"])) or _not_given(books, device, body["method"])
        waits = answer.state == "unsent" and "hold" in body
        end(command, Answer("held", None, None) if waits else answer)
        if waits and "replaces" in body:
            _replace(books, command, body["replaces"])
        books.keys[key] = command["id"]
        books.commands[command["id"]] = command
    command = books.commands[books.keys[key]]
    prefer = headers.get("prefer", "")
    wait = float(prefer.removeprefix("wait=")) if prefer.startswith("wait=") else 0.0 if prefer else 60.0
    books.changed.wait_for(lambda: command["state"] in OUTCOMES, wait)
    return _answer_to(command)


def _replace(books: Books, command: dict[str, Any], key: object) -> None:
    """Have a command take the place of what waits for its device with its key."""
    command["hold"] = {"waits_for": ["device"], "replaces": key}
    for one in books.commands.values():
        same = one["device_id"] == command["device_id"] and (one.get("hold") or {}).get("replaces") == key
        if same and one["state"] == "held":
            end(one, Answer("cancelled", None, ("superseded", f"command {command['id']} came after it")))


def _not_given(books: Books, device: str, method: str) -> Answer:
    """The end of a command that the test has no answer for: a device without any is not there."""
    said = f"nothing was given for {device}/{method}: fake.on({device!r}, {method!r}, …)"
    if any(name == device for name, _ in books.answers):
        return Answer("timed_out", None, ("timed_out", said))
    return Answer("unsent", None, ("no_subscriber", f"nobody is subscribed to the device's command topic; {said}"))


def _new(number: int, device: str, body: Mapping[str, Any]) -> dict[str, Any]:
    now = stamp()
    empty = ("result", "error", "finished_at", "received_by", "matched_by", "late", "verified", "progress")
    return {
        **dict.fromkeys((*empty, "last_progress")),
        "id": f"000-01J{number:023}",
        "device_id": device,
        "method": body["method"],
        "params": body.get("params", {}),
        "state": "pending",
        "deadline": now,
        "created_at": now,
        "home_node": "fake-node",
        "forwarded": False,
        "profile": body.get("profile", "homing"),
        "if_offline": body.get("if_offline", "fail"),
    }


def _list(books: Books, query: Mapping[str, Sequence[str]], device: str | None) -> Said:
    wanted = device or query.get("device", [None])[0]
    state = query.get("state", [None])[0]
    found = [
        one
        for one in reversed(books.commands.values())
        if wanted in (None, one["device_id"]) and state in (None, one["state"])
    ]
    start, limit = int(query.get("cursor", ["0"])[0]), int(query.get("limit", ["50"])[0])
    more = len(found) > start + min(limit, _MANY)
    return 200, {"commands": found[start : start + limit], "cursor": str(start + limit) if more else None}


def events_of(books: Books, command_id: str, seen: int) -> list[tuple[str, dict[str, Any]]]:
    """The events of a command after the event `seen`; the first of all is number 0."""
    command = books.commands[command_id]
    reports = [("progress", {"seq": number, **one}) for number, one in enumerate(books.reports.get(command_id, ()), 1)]
    outcome = [("outcome", command)] if command["state"] in OUTCOMES else []
    return [("command", command), *reports, *outcome][seen + 1 :]


def over(books: Books, command_id: str, seen: int) -> bool:
    """Return whether nothing comes after the event `seen` of a command any more."""
    with books.changed:
        return books.commands[command_id]["state"] in OUTCOMES and not events_of(books, command_id, seen)


def _one(books: Books, method: str, command_id: str) -> Said:
    command = books.commands.get(command_id)
    if command is None:
        return problem("command-not-found", 404, f"there is no command {command_id}", command_id=command_id)
    if method == "DELETE":
        if command["state"] in OUTCOMES:
            return problem("command-finished", 409, f"it has an outcome: {command['state']}", command_id=command_id)
        end(command, Answer("cancelled"))
        books.changed.notify_all()
    return 200, command


def _probe(books: Books, command_id: str) -> Said:
    status, command = _one(books, "GET", command_id)
    if status != HTTPStatus.OK:
        return status, command
    if command["verified"] is not None:
        return 200, {"result": command["verified"]["kind"], "command": command}
    finding = books.findings.get((command["device_id"], command["method"]))
    if finding is None:
        reason = f"profile {command['profile']!r} has no probe for {command['method']}"
        return problem(
            "invalid-input", 422, f"command_id: {reason}", errors=[{"field": "command_id", "reason": reason}]
        )
    if command["state"] != "timed_out":
        said = f"a command that is {command['state']} needs no probe; allowed: one that has timed out"
        return problem("command-finished", 409, said, command_id=command_id)
    if finding.state is None:
        return 200, {"result": "not_so", "command": command}
    kind = "goal" if finding.state == "succeeded" else "bound"
    seen = {"state": finding.state, "kind": kind, "topic": finding.topic, "at": stamp(), "value": dict(finding.value)}
    command["verified"] = {**seen, "found_at": stamp()}
    return 200, {"result": kind, "command": command}


def serve(books: Books, method: str, target: str, headers: Mapping[str, str], body: object) -> Said:
    """Answer a request as a node does; what the fake does not do is said to be that, and nothing else."""
    parts = urlsplit(target)
    path, query = [unquote(part) for part in parts.path.split("/")[1:]], parse_qs(parts.query)
    match method, path:
        case "POST", ["v1", "devices", device, "commands"]:
            return _send(books, device, headers, body)
        case "GET", ["v1", "devices", device, "commands"]:
            return _list(books, query, device)
        case "GET", ["v1", "commands"]:
            return _list(books, query, None)
        case _, ["v1", "commands", command_id, *operation] if command_id != "events":
            return _of_command(books, method, command_id, operation) or _not_here(method, parts.path)
        case "GET", _ if (found := _about_itself().get(parts.path)) is not None:
            return 200, found
        case _:
            return _not_here(method, parts.path)


def _of_command(books: Books, method: str, command_id: str, operation: Sequence[str]) -> Said | None:
    match method, operation:
        case (("GET" | "DELETE"), []):
            return _one(books, method, command_id)
        case "POST", ["cancel"]:
            return _one(books, "DELETE", command_id)
        case "POST", ["probe"]:
            return _probe(books, command_id)
        case "GET", ["events"]:
            return _one(books, method, command_id)  # where there is such a command, its events are a stream
        case _:
            return None


def _not_here(method: str, path: str) -> Said:
    said = f"the fake node does not do {method} {path}: it knows commands; test the rest against a real node"
    return problem("not-on-the-fake", HTTPStatus.NOT_IMPLEMENTED, said)


def _about_itself() -> dict[str, dict[str, Any]]:
    node = {"node_id": "fake-node", "incarnation": "0" * 26, "started_at": stamp(), "self": True}
    return {
        "/v1/nodes": {"nodes": [node], "self": {"state": "ready"}},
        "/v1/me": {"open": True},
        "/readyz": {"state": "ready", "checks": {}},
        "/healthz": {"status": "ok"},
    }
