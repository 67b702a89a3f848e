"""Runs `homing` inside the test's process, and a stand-in for a node at the wire."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import structlog

from app.cli.root import run

Homing = Callable[..., tuple[int, str, str]]


@pytest.fixture
def homing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Homing:
    """Run a command line in an empty folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    structlog_before = structlog.get_config()

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["homing", *arguments])
        code = run()
        structlog.configure(**structlog_before)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@dataclass
class FakeNode:
    """Answers every request with the next of `answers`, the last one for ever, and keeps what was asked.

    An answer is the JSON or the bytes of a body, or a list of events to stream: (kind, JSON[, id]); and headers.
    """

    url: str = ""
    answers: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)


def streamed(event: tuple[Any, ...]) -> str:
    """A server-sent event, of (kind, JSON) or (kind, JSON, id)."""
    kind, data, *identity = event
    return "".join(f"id: {one}\n" for one in identity) + f"event: {kind}\ndata: {json.dumps(data)}\n\n"


@pytest.fixture
def fake_node() -> Iterator[FakeNode]:
    node = FakeNode()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            node.asked.append((self.command, self.path, dict(self.headers), body))
            status, answer, *more = node.answers.pop(0) if len(node.answers) > 1 else node.answers[0]
            kind, content = "application/json", answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            if isinstance(answer, list):
                kind = "text/event-stream"
                content = "".join(map(streamed, answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in (more[0] if more else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    node.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield node
    server.shutdown()
    thread.join()
    server.server_close()
