"""A node that is none, for the tests of those who use this package: real HTTP, no broker, no store.

    with FakeHoming() as fake, Homing(fake.url) as homing:
        fake.on("dock-1", "cover_open", result={"angle": 90})
        assert homing.call("dock-1", "cover_open").result == {"angle": 90}
        assert fake.commands[0].method == "cover_open"

It answers as a node does, as far as commands go; this package's tests run against both. All else gets a problem of the
type `not-on-the-fake` (501), whatever was asked: an error that no node gives, and that is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from homing_client._fake import Answer, Books, Finding, Refusal, Said, end, events_of, over, problem, serve, stamp
from homing_client._models import Command


class FakeHoming:
    """A server on a free port of this machine, from `with` to its end."""

    def __init__(self) -> None:
        self._books = Books()
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
            end(self._books.commands[command_id], Answer("failed" if error else "succeeded", result, error))
            self._books.changed.notify_all()

    def tell(
        self,
        device_id: str,
        method: str,
        value: Mapping[str, Any] | None = None,
        *,
        state: str | None = "succeeded",
        topic: str = "state",
    ) -> None:
        """Give a method a probe, and the device a state: what `probe` finds of commands that have timed out.

        `succeeded` is a goal that is reached, `failed` a state that names the command as one not done. With None the
        device tells a state that says neither.
        """
        with self._books.changed:
            self._books.findings[device_id, method] = Finding(state, topic, value or {})

    def report(self, command_id: str, progress: Any) -> None:  # noqa: ANN401 - any JSON value
        """Let the device of an open command report how far it is."""
        with self._books.changed:
            self._books.commands[command_id]["progress"] = progress
            self._books.reports.setdefault(command_id, []).append({"at": stamp(), "progress": progress})
            self._books.changed.notify_all()

    def refuse(self, status: int = 503, *, times: int = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answer the next requests with this status, before anything is done."""
        with self._books.changed:
            self._books.refusals.append(Refusal(status, headers or {}, times))

    def lose_answers(self, times: int = 1) -> None:
        """Do what the next requests ask, and cut their connections in place of an answer."""
        with self._books.changed:
            self._books.to_lose += times


class _Handler(BaseHTTPRequestHandler):
    books: Books
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
        self.send_response(204 if over(self.books, command_id, seen) else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while not over(self.books, command_id, seen):
            with self.books.changed:
                while not (happened := events_of(self.books, command_id, seen)):
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
                return *problem("refused", refusal.status, "refused, as the test wants it"), refusal.headers
        return None

    def _served(self, headers: Mapping[str, str], content: bytes) -> Said:
        try:
            body = json.loads(content) if content else None
        except ValueError:
            return problem("unreadable-body", 422, "body: it is not JSON (RFC 8259)")
        return serve(self.books, self.command, self.path, headers, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives it
        pass
