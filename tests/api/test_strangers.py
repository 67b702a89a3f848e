"""A node tells somebody whom nobody knows just that, and does nothing more for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from app.api.openapi import PUBLIC
from tests.api.documents import document_of
from tests.api.test_access import Site, actions, guarded

UNKNOWN = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer homing_x"), (b"content-type", b"application/json")]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


async def status_without_body(site: Site, method: str, path: str) -> int:
    """The answer to a request whose body must not be asked for."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError(f"{method} {path} reads what a stranger sends")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
    scope |= {"http_version": "1.1", "scheme": "http", "query_string": b"", "headers": UNKNOWN, "client": ("peer", 1)}
    await site.rig.application(scope, receive, send)
    return int(sent[0]["status"])


async def test_no_operation_reads_a_body_of_strangers(site: Site) -> None:
    operations = actions(await document_of(site.rig)).keys() - PUBLIC
    assert operations
    for method, path in (name.split(" ") for name in operations):
        if path.startswith("/v1/"):
            filled = path.replace("{", "").replace("}", "")
            assert await status_without_body(site, method, filled) == 401, (method, path)


@pytest.mark.parametrize(("method", "path", "known"), [("GET", "/v1/nothing", 404), ("PATCH", "/v1/commands", 405)])
async def test_strangers_do_not_learn_which_paths_there_are(site: Site, method: str, path: str, known: int) -> None:
    assert await status_without_body(site, method, path) == 401
    assert (await site.rig.http.request(method, path, headers=site.headers("viewer"))).status_code == known


async def test_who_logs_in_need_not_be_known(site: Site) -> None:
    refused = await site.rig.http.post("/v1/login", json={}, headers={"Authorization": "Bearer homing_x"})
    assert refused.status_code == 422
