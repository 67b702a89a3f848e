"""Secrets of callers are found nowhere: every operation is asked with some, and all that came out is searched.

A real node at its most talkative, with traces, an audit and the real servers behind it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from redis import Redis

from app.access.login.passwords import Passwords
from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Kind, Principal
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.cluster.harness import Cluster, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

PASSWORD: Final = "canary-password-b7ad6b71"
WRONG: Final = "canary-wrong-8448eb21"
PARAMS: Final = "canary-params-0af76519"
TOKEN: Final = "eyJhbGciOiJub25lIn0.canary-token-69203331.x"
TYPO: Final = "homing_2F7QW9ZD_" + "canarykey4cd43dd".ljust(43, "a") + "_000000"
METHODS: Final = ("get", "post", "put", "delete", "patch")


class Collector:
    """Everything that a tracing endpoint was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        return web.Response(content_type="application/x-protobuf")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    application = web.Application(client_max_size=2**26)
    application.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield collector
    await runner.cleanup()


@pytest.fixture
def boss() -> Key:
    return make_key(secrets.token_bytes)


@pytest.fixture
def cluster(tmp_path: Path, boss: Key, collector: Collector) -> Iterator[Cluster]:
    settings = {
        "HOMING_ACCESS_URL": f"sqlite:///{tmp_path / 'access.db'}",
        "HOMING_ACCESS_BOOTSTRAP_KEY": boss.text,
        "HOMING_LOG_LEVEL": "debug",
        "HOMING_TRACING_ENDPOINT": collector.url,
        "HOMING_TRACING_SAMPLE_RATIO": "1.0",
    }
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(1, redis, broker, **settings) as cluster:
        yield cluster


@asynccontextmanager
async def person(folder: Path) -> AsyncIterator[None]:
    """Ann, who logs in with a password."""
    directory = open_directory(f"sqlite:///{folder / 'access.db'}", new_cluster_id=new_secret)
    passwords = Passwords()
    hashed = await passwords.hash(PASSWORD)
    passwords.close()
    await directory.apply(
        [
            Put(Principal(id="ann", tenant_id=None, kind=Kind.USER, name="ann", password_hash=hashed)),
            Put(Binding(id="ann", subject="ann", role="admin", tenant_id=None)),
        ]
    )
    yield
    await directory.close()


class Caller:
    """Asks a node, and keeps what it said."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.said: list[tuple[str, str]] = []
        """The questions with their answers: of problems without the command, which has the params for a caller who may
        read it."""

    async def ask(self, method: str, path: str, authorization: str, body: object = None) -> dict[str, Any]:
        headers = {"Authorization": authorization, "Prefer": "wait=1"}
        async with self._session.request(method, self._url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            shown = text
            if "problem+json" in answer.headers.get("content-type", ""):
                problem = json.loads(text)
                problem.pop("command", None)
                shown = json.dumps(problem)
            kind = "problem" if answer.status >= 400 else "answer"
            self.said.append((f"{kind} {method} {path}", f"{dict(answer.headers)} {shown}"))
            found: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
            return found


async def every_operation(caller: Caller, key: str) -> None:
    """Each one, with secrets where it takes something."""
    document = await caller.ask("get", "/openapi.json", "")
    hostile = {"params": PARAMS, "password": WRONG, "key": TYPO, "method": 1, "rules": 1, "bindings": PARAMS}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method not in operations or "/stream" in path or path == "/v1/overview/events":  # these do not end
                continue
            url = path
            for parameter in operations[method].get("parameters", []):
                if parameter["in"] == "path":
                    url = url.replace("{" + parameter["name"] + "}", "SN0001")
            for authorization in (f"Bearer {key}", f"Bearer {TOKEN}", f"Bearer {TYPO}", f"Basic {WRONG}"):
                body = None if method in ("get", "delete") else hostile
                await caller.ask(method, f"{url}?api_key={TYPO}", authorization, body)


async def test_secrets_are_in_nothing_that_comes_out(
    cluster: Cluster, boss: Key, collector: Collector, tmp_path: Path
) -> None:
    async with (
        person(tmp_path),
        devices(cluster.broker, lambda device, command: device.answer(command)),
        aiohttp.ClientSession() as session,
    ):
        caller = Caller(session, cluster.nodes[0].url)
        bearer = f"Bearer {boss.text}"
        made = await caller.ask("post", "/v1/keys", bearer, {"label": "x"})
        caller.said.pop()
        login = await caller.ask("post", "/v1/login", "", {"name": "ann", "password": PASSWORD})
        caller.said.pop()
        await caller.ask("post", "/v1/login", "", {"name": "ann", "password": WRONG})
        for device, members in (
            ("SN0001", {"method": "cover_open", "timeout": "5s"}),
            ("SN0001", {"method": "cover_open", "timeout": "1ms"}),
            ("SN0001", {"method": "cover_open", "unknown": PARAMS}),
            ("SN0001", {"method": "cover_open", "timeout": 5}),
            ("a b", {"method": "cover_open"}),
        ):
            body = {"params": {"pin": PARAMS}, **members}
            answer = await caller.ask("post", f"/v1/devices/{device}/commands", bearer, body)
            if "params" in answer:
                caller.said.pop()  # who sent them may read them
        await every_operation(caller, made["key"])
        await caller.ask("post", "/v1/devices/SN0001/commands", f"Bearer {login['key']}", {"method": "cover_open"})
        caller.said.pop()
        async with session.get(f"{cluster.nodes[0].url}/metrics", headers={"Authorization": bearer}) as metrics:
            caller.said.append(("metrics", await metrics.text()))
        await eventually(lambda: asyncio.sleep(0, bool(collector.bodies)))
        cluster.nodes[0].stop()

        keys = [boss.text, made["key"], login["key"]]
        anywhere = [PASSWORD, WRONG, TOKEN, TYPO, *keys, *(key.split("_")[2] for key in keys)]
        for secret in (*anywhere, PARAMS):
            assert not [place for place, text in caller.said if secret in text], secret
            for place, text in outside(cluster, collector, tmp_path):
                assert secret.encode() not in text, (secret, place)
        for secret in anywhere:
            for place, text in stored(cluster):
                assert secret.encode() not in text, (secret, place)
        assert len(caller.said) > 150


def outside(cluster: Cluster, collector: Collector, folder: Path) -> Iterable[tuple[str, bytes]]:
    """Yield what a node leaves behind: logs, traces, and the directory with its audit."""
    yield "log", cluster.nodes[0].log_text.encode()
    for body in collector.bodies:
        yield "trace", body
    for file in folder.glob("access.db*"):
        yield file.name, file.read_bytes()


def stored(cluster: Cluster) -> Iterable[tuple[str, bytes]]:
    """All of Redis, where params are part of the records."""
    with Redis.from_url(cluster.redis.url) as redis:
        for key in redis.scan_iter():
            yield key.decode(), key + b" " + bytes(redis.dump(key) or b"")
