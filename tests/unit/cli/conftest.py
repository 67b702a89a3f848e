"""Runs `homing` inside the test's process, a stand-in for a node at the wire, and an access directory."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import structlog

from app.cli.root import run
from app.core.access.model import Document
from app.store.engine import open_directory

Homing = Callable[..., tuple[int, str, str]]
Read = Callable[[], Document]
PASSWORD = "correct horse battery staple"


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


@pytest.fixture
def read(homing: Homing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    """A way to read what is on record in the file that the verbs have to use."""
    url = f"sqlite:///{tmp_path}/access.db"
    monkeypatch.setenv("HOMING_ACCESS_URL", url)
    monkeypatch.setenv("HOMING_ACCESS_BUDGET", "60s")

    def document() -> Document:
        async def read() -> Document:
            directory = open_directory(url, new_cluster_id=str, budget=timedelta(minutes=1))
            try:
                return await directory.read()
            finally:
                await directory.close()

        return asyncio.run(read())

    return document


@pytest.fixture
def admin_key(homing: Homing, read: Read) -> str:
    code, out, _ = homing("access", "init")
    assert code == 0
    return out.strip()


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
