"""A node that is none, for the tests of those who use this package: real HTTP, no broker, no store.

    with FakeHoming() as fake, Homing(fake.url) as homing:
        fake.on("dock-1", "cover_open", result={"angle": 90})
        assert homing.call("dock-1", "cover_open").result == {"angle": 90}
        assert fake.commands[0].method == "cover_open"

It answers as a node does, as far as commands go; this package's tests run against both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from homing_client import _system
from homing_client._models import OUTCOMES, Command

_MANY: Final = 200
_Said = tuple[int, dict[str, Any]]
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


@dataclass(slots=True)
class _Refusal:
    status: int
    headers: Mapping[str, str]
    times: int


@dataclass(slots=True)
class _Books:
    """The commands that were asked for so far, and their answers. Guarded by `changed`."""

    changed: Condition = field(default_factory=Condition)
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    refusals: list[_Refusal] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    to_lose: int = 0


class FakeHoming:
    """A server on a free port of this machine, from `with` to its end."""

    def __init__(self) -> None:
        self._books = _Books()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"books": self._books}))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), name="fake-homing")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The URL of the fake."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def commands(self) -> list[Command]:
        """The commands that it was sent, oldest first."""
        with self._books.changed:
            return [Command.of(dict(one)) for one in self._books.commands.values()]

    @property
    def requests(self) -> list[str]:
        """All that it was asked: `POST /v1/devices/dock-1/commands`, one after another."""
        with self._books.changed:
            return list(self._books.requests)

    def on(
        self,
        device_id: str,
        method: str,
        *,
        result: Any = None,  # noqa: ANN401 - any JSON value
        error: tuple[Any, str] | None = None,
        state: str | None = None,
    ) -> None:
        """Have a device answer a method: with a result, with an error (code, message), or with nothing but a state.

        State `pending` leaves the command open until `finish`, `timed_out` ends it as if the device were silent. Of a
        device that has no answers, nobody is subscribed.
        """
        with self._books.changed:
            self._books.answers[device_id, method] = Answer(
                state or ("failed" if error else "succeeded"), result, error
            )

    def finish(
        self,
        command_id: str,
        *,
        result: Any = None,  # noqa: ANN401 - any JSON value
        error: tuple[Any, str] | None = None,
    ) -> None:
        """Let the device of an open command answer now."""
        with self._books.changed:
            _end(self._books.commands[command_id], Answer("failed" if error else "succeeded", result, error))
            self._books.changed.notify_all()

    def report(self, command_id: str, progress: Any) -> None:  # noqa: ANN401 - any JSON value
        """Let the device of an open command report how far it is."""
        with self._books.changed:
            self._books.commands[command_id]["progress"] = progress
            self._books.reports.setdefault(command_id, []).append({"at": _now(), "progress": progress})
            self._books.changed.notify_all()

    def refuse(self, status: int = 503, *, times: int = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answer the next requests with this status, before anything is done."""
        with self._books.changed:
            self._books.refusals.append(_Refusal(status, headers or {}, times))

    def lose_answers(self, times: int = 1) -> None:
        """Do what the next requests ask, and cut their connections in place of an answer."""
        with self._books.changed:
            self._books.to_lose += times


def _now() -> str:
    return datetime.fromtimestamp(_system.wall(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _end(command: dict[str, Any], answer: Answer) -> None:
    told = answer.error or _OWN_ERRORS.get(answer.state)
    error = told and {"code": told[0], "message": told[1]}
    command |= {"state": answer.state, "result": answer.result, "error": error}
    if answer.state in OUTCOMES:
        command |= {"finished_at": _now(), "progress": None, "last_progress": command["progress"]}


def _problem(slug: str, status: int, detail: str, **facts: Any) -> _Said:
    return status, {"type": f"urn:homing:problem:{slug}", "title": slug, "status": status, "detail": detail, **facts}


def _answer_to(command: dict[str, Any]) -> _Said:
    said = str((command["error"] or {}).get("message"))
    match command["state"]:
        case "timed_out":
            return _problem("timed-out", 504, said, command_id=command["id"], command=command)
        case "unsent":
            return _problem("device-not-listening", 409, said, command_id=command["id"], command=command)
        case state:
            return (200 if state in OUTCOMES else 202), command


def _send(books: _Books, device: str, headers: Mapping[str, str], body: object) -> _Said:
    if not isinstance(body, dict) or not isinstance(body.get("method"), str):
        return _problem("invalid-input", 422, "method: is missing", errors=[{"field": "method", "reason": "missing"}])
    if body.get("dry_run"):
        known = any(name == device for name, _ in books.answers)
        return 200, {"dry_run": True, "would": "send" if known else "refuse", "device_id": device, **body}
    key = (device, headers.get("idempotency-key") or _system.new_key())
    if key not in books.keys:
        command = _new(len(books.commands), device, body)
        answer = books.answers.get((device, body["method"])) or _not_given(books, device, body["method"])
        waits = answer.state == "unsent" and "hold" in body
        _end(command, Answer("held", None, None) if waits else answer)
        books.keys[key] = command["id"]
        books.commands[command["id"]] = command
    command = books.commands[books.keys[key]]
    prefer = headers.get("prefer", "")
    wait = float(prefer.removeprefix("wait=")) if prefer.startswith("wait=") else 0.0 if prefer else 60.0
    books.changed.wait_for(lambda: command["state"] in OUTCOMES, wait)
    return _answer_to(command)


def _not_given(books: _Books, device: str, method: str) -> Answer:
    """The end of a command that the test has no answer for: a device without any is not there."""
    said = f"nothing was given for {device}/{method}: fake.on({device!r}, {method!r}, …)"
    if any(name == device for name, _ in books.answers):
        return Answer("timed_out", None, ("timed_out", said))
    return Answer("unsent", None, ("no_subscriber", f"nobody is subscribed to the device's command topic; {said}"))


def _new(number: int, device: str, body: Mapping[str, Any]) -> dict[str, Any]:
    now = _now()
    empty = ("result", "error", "finished_at", "received_by", "matched_by", "late", "progress", "last_progress")
    return {
        **dict.fromkeys(empty),
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


def _list(books: _Books, query: Mapping[str, Sequence[str]], device: str | None) -> _Said:
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


def _happened(books: _Books, command_id: str, seen: int) -> list[tuple[str, dict[str, Any]]]:
    """The events of a command after the event `seen`; the first of all is number 0."""
    command = books.commands[command_id]
    reports = [("progress", {"seq": number, **one}) for number, one in enumerate(books.reports.get(command_id, ()), 1)]
    outcome = [("outcome", command)] if command["state"] in OUTCOMES else []
    return [("command", command), *reports, *outcome][seen + 1 :]


def _over(books: _Books, command_id: str, seen: int) -> bool:
    with books.changed:
        return books.commands[command_id]["state"] in OUTCOMES and not _happened(books, command_id, seen)


def _one(books: _Books, method: str, command_id: str) -> _Said:
    command = books.commands.get(command_id)
    if command is None:
        return _problem("command-not-found", 404, f"there is no command {command_id}", command_id=command_id)
    if method == "DELETE":
        if command["state"] in OUTCOMES:
            return _problem("command-finished", 409, f"it has an outcome: {command['state']}", command_id=command_id)
        _end(command, Answer("cancelled"))
        books.changed.notify_all()
    return 200, command


def _serve(books: _Books, method: str, target: str, headers: Mapping[str, str], body: object) -> _Said:
    parts = urlsplit(target)
    path, query = [unquote(part) for part in parts.path.split("/")[1:]], parse_qs(parts.query)
    match method, path:
        case "POST", ["v1", "devices", device, "commands"]:
            return _send(books, device, headers, body)
        case "GET", ["v1", "devices", device, "commands"]:
            return _list(books, query, device)
        case "GET", ["v1", "commands"]:
            return _list(books, query, None)
        case "POST", ["v1", "commands", command_id, "cancel"]:
            return _one(books, "DELETE", command_id)
        case (("GET" | "DELETE"), ["v1", "commands", command_id]):
            return _one(books, method, command_id)
        case "GET", _:
            found = _about_itself().get(parts.path)
            return (200, found) if found else _problem("not-found", 404, "no such path on the fake node")
        case _:
            return _problem("method-not-allowed", 405, "the fake node does nothing else")


def _about_itself() -> dict[str, dict[str, Any]]:
    node = {"node_id": "fake-node", "incarnation": "0" * 26, "started_at": _now(), "self": True}
    return {
        "/v1/nodes": {"nodes": [node], "self": {"state": "ready"}},
        "/v1/me": {"open": True},
        "/readyz": {"state": "ready", "checks": {}},
        "/healthz": {"status": "ok"},
    }


class _Handler(BaseHTTPRequestHandler):
    books: _Books
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        parts = urlsplit(self.path).path.split("/")
        with self.books.changed:
            self.books.requests.append(f"{self.command} {self.path}")
            known = len(parts) == 5 and parts[4] == "events" and parts[3] in self.books.commands  # noqa: PLR2004
        if known and not self.books.refusals:
            self._stream(parts[3], int(headers.get("last-event-id", "/-1").rpartition("/")[2]))
            return
        with self.books.changed:
            status, answer, extra = self._refused() or (*self._served(headers, content), {})
            lost = self.books.to_lose > 0
            self.books.to_lose -= lost
        if lost:
            self.close_connection = True
            return
        text = json.dumps(answer).encode()
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"  # noqa: PLR2004 - RFC 9110
        for name, value in {"Content-Type": kind, "Content-Length": str(len(text)), **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, command_id: str, seen: int) -> None:
        """Write the events of a command after the event `seen`, and those to come, up to its outcome."""
        self.close_connection = True
        self.send_response(204 if _over(self.books, command_id, seen) else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while not _over(self.books, command_id, seen):
            with self.books.changed:
                while not (happened := _happened(self.books, command_id, seen)):
                    self.books.changed.wait()
                text = "".join(
                    f"id: {command_id}/{number}\nevent: {kind}\ndata: {json.dumps(told)}\n\n"
                    for number, (kind, told) in enumerate(happened, seen + 1)
                )
            seen += len(happened)
            self.wfile.write(text.encode())
            self.wfile.flush()

    def _refused(self) -> tuple[int, dict[str, Any], Mapping[str, str]] | None:
        for refusal in self.books.refusals:
            if refusal.times > 0:
                refusal.times -= 1
                if refusal.times == 0:
                    self.books.refusals.remove(refusal)
                return *_problem("refused", refusal.status, "refused, as the test wants it"), refusal.headers
        return None

    def _served(self, headers: Mapping[str, str], content: bytes) -> _Said:
        try:
            body = json.loads(content) if content else None
        except ValueError:
            return _problem("unreadable-body", 422, "body: it is not JSON (RFC 8259)")
        return _serve(self.books, self.command, self.path, headers, body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives it
        pass
