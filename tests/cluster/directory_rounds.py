"""Two nodes on one SQLite file, verbs beside them, and a model of what has been acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import aiohttp

from app.audit.verification import all_lines, verify
from app.core.access.keys import Key, parse_key
from app.core.audit.chain import DIRECTORY
from app.store.directory import AccessDirectory
from homing_rig.directory import add_service, opened
from tests.cluster.harness import Cluster, NodeProcess
from tests.open_files import deleted_files
from tests.waiting import eventually

FILE: Final = "access.db"
_REFUSED: Final = {412, 503}
"""Somebody else was quicker each time, or the database did not answer in time: whether it was made is not known."""


Step = Callable[[], Awaitable[None]]


class NotAcknowledgedError(Exception):
    """Nobody knows whether it has happened."""


@dataclass
class Model:
    """The acknowledged changes. What nobody knows of is in none of these."""

    live: dict[str, str] = field(default_factory=dict)
    """Keys by their ids."""
    revoked: dict[str, str] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    changes: int = 0


class Rounds:
    """Plays rounds, each of which is checked at its end. `history` is what was done."""

    def __init__(self, cluster: Cluster, database: str, admin: Key, seed: int) -> None:
        self._cluster = cluster
        self._database = database
        self._admin = admin
        self._random: Final = Random(seed)
        self._model: Final = Model()
        self._down: Final[set[str]] = set()
        self._names = 0
        self.history: Final[list[str]] = []

    async def play(self, count: int) -> None:
        """Play so many rounds. AssertionError where something that must hold does not."""
        async with aiohttp.ClientSession() as session:
            self._session = session
            for number in range(count):
                self.history.append(f"round {number}")
                for _ in range(self._random.randint(1, 3)):
                    await self._act()
                await self._check()

    @property
    def _up(self) -> list[NodeProcess]:
        return [one for one in self._cluster.nodes if one.node_id not in self._down]

    async def _act(self) -> None:
        """One of: a step by itself, two changes at once, a node that ends while something is changed."""
        steps: list[Step] = [self._verb_makes, self._verb_revokes, self._verb_reads, self._verb_adds]
        if self._up:
            steps += [self._http_makes, self._http_revokes, self._http_adds]
        kind = self._random.choices(("one", "two", "end", "start"), (5, 3, 3, 3))[0]
        if kind == "start" and self._down:
            await self._start(self._random.choice(sorted(self._down)))
        elif kind == "end" and self._up:
            await self._end(self._random.choice(self._up), self._random.choice(steps), kill=self._random.random() < 0.5)
        elif kind == "two":
            first, second = self._random.sample(steps, 2)
            await asyncio.gather(self._unless_refused(first()), self._unless_refused(second()))
        else:
            await self._unless_refused(self._random.choice(steps)())

    async def _unless_refused(self, step: Awaitable[None]) -> None:
        with suppress(NotAcknowledgedError):
            await step

    # What nodes do

    async def _start(self, node_id: str) -> None:
        self.history.append(f"start {node_id}")
        (node,) = (one for one in self._cluster.nodes if one.node_id == node_id)
        await asyncio.to_thread(node.start)
        self._down.discard(node_id)

    async def _end(self, node: NodeProcess, step: Step, *, kill: bool) -> None:
        """Stop or kill a node, while something else is done that may ask that very node."""
        self.history.append(f"{'kill' if kill else 'stop'} {node.node_id}")
        beside = asyncio.create_task(self._unless_refused(step()))
        await asyncio.sleep(0)
        await asyncio.to_thread(node.kill if kill else node.stop)
        self._down.add(node.node_id)
        if kill:
            self._cluster.end_lease(node.node_id)
        await beside

    # What is changed

    async def _verb_makes(self) -> None:
        name = self._name()
        said = await self._verb("keys", "create", name, "--role", "viewer")
        self._made(said.strip().splitlines()[-1])

    async def _verb_revokes(self) -> None:
        if (key_id := self._some_key()) is not None:
            text = self._model.live.pop(key_id)
            await self._verb("keys", "revoke", key_id)
            self._revoked(key_id, text)

    async def _verb_adds(self) -> None:
        name = self._name()
        await self._verb("users", "add", name, "--no-password")
        self._added(name)

    async def _verb_reads(self) -> None:
        verbs = (("keys", "list"), ("access", "export"), ("users", "list"), ("audit", "verify"), ("audit", "tail"))
        await self._verb(*self._random.choice(verbs))

    async def _http_makes(self) -> None:
        self._made((await self._ask("POST", "/v1/keys", {"label": self._name()}))["key"])

    async def _http_revokes(self) -> None:
        if (key_id := self._some_key()) is not None:
            text = self._model.live.pop(key_id)
            await self._ask("DELETE", f"/v1/keys/{key_id}")
            self._revoked(key_id, text)

    async def _http_adds(self) -> None:
        name = self._name()
        await self._ask("PUT", f"/v1/principals/{name}", {"kind": "user"})
        self._added(name)

    def _name(self) -> str:
        self._names += 1
        return f"name-{self._names}"

    def _some_key(self) -> str | None:
        return self._random.choice(sorted(self._model.live)) if self._model.live else None

    def _made(self, text: str) -> None:
        key = parse_key(text)
        assert isinstance(key, Key)
        self._model.live[key.id] = text
        self._model.changes += 1

    def _revoked(self, key_id: str, text: str) -> None:
        self._model.revoked[key_id] = text
        self._model.changes += 1

    def _added(self, name: str) -> None:
        self._model.people.add(name)
        self._model.changes += 1

    async def _verb(self, *arguments: str) -> str:
        """Return what `homing …` says, which must succeed: nodes that come and go do it no harm."""
        self.history.append(" ".join(("homing", *arguments)))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "app.cli",
            *arguments,
            env={**os.environ, "HOMING_ACCESS_URL": self._database, "HOMING_ACCESS_BUDGET": "60s"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, errors = await process.communicate()
        assert process.returncode == 0, f"{arguments}: {errors.decode()}"
        return said.decode()

    async def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, str]:
        """Ask some node; NotAcknowledgedError when it ended meanwhile, or could not."""
        if not self._up:  # the only one ends in this moment
            raise NotAcknowledgedError
        node = self._random.choice(self._up)
        self.history.append(f"{method} {path} at {node.node_id}")
        try:
            async with self._session.request(
                method, f"{node.url}{path}", json=body, headers=_bearer(self._admin.text)
            ) as response:
                if response.status in _REFUSED:
                    raise NotAcknowledgedError
                said: dict[str, str] = {} if response.status == 204 else await response.json()
                assert response.status in {200, 201, 204}, said
                return said
        except aiohttp.ClientError:
            raise NotAcknowledgedError from None

    # What must be true

    async def _check(self) -> None:
        for node in self._up:
            assert deleted_files(node.pid, FILE) == [], node.node_id
        async with opened(self._database) as directory:
            await self._check_record(directory)
            sentinel = await add_service(directory, self._name(), "viewer")
        for node in self._up:
            await self._check_node(node, sentinel)
            assert deleted_files(node.pid, FILE) == [], node.node_id
        self._made(sentinel.text)

    async def _check_record(self, directory: AccessDirectory) -> None:
        """Nothing that was acknowledged is lost, and each version has its line in an audit that is whole."""
        document = await directory.read()
        revoked = {one.id: one.revoked_us is not None for one in document.credentials}
        assert all(revoked.get(one) is False for one in self._model.live), "a key is lost, or revoked"
        assert all(revoked.get(one) is True for one in self._model.revoked), "a revocation is lost"
        assert self._model.people <= {one.id for one in document.principals}, "a person is lost"
        assert document.version >= self._model.changes
        assert (await verify(directory.audit)).faults == ()
        told = {one.line.seq async for one in all_lines(directory.audit) if one.line.writer == DIRECTORY}
        assert told >= set(range(1, document.version + 1)), "a change has no line"

    async def _check_node(self, node: NodeProcess, sentinel: Key) -> None:
        """A node that knows the youngest key knows of all that was revoked before it was made."""

        async def follows() -> bool:
            return await self._status(node, sentinel.text) == 200

        await eventually(follows)
        for key_id, text in self._some(self._model.revoked):
            assert await self._status(node, text) == 401, f"{key_id} is revoked, and {node.node_id} takes it"
        for key_id, text in self._some(self._model.live):
            assert await self._status(node, text) == 200, f"{node.node_id} does not know {key_id}"

    def _some(self, keys: dict[str, str]) -> Sequence[tuple[str, str]]:
        """The latest, and a few of the others."""
        found = list(keys.items())
        return [*found[-5:], *self._random.sample(found, min(len(found), 5))]

    async def _status(self, node: NodeProcess, key: str) -> int:
        async with self._session.get(f"{node.url}/v1/me", headers=_bearer(key)) as response:
            return response.status


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
