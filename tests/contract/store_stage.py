"""The stores that random histories run on, and the words that the histories are made of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from redis.asyncio import Redis

from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.errors import HomingError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.profiles.probes import ProbeEvidence, ProbeFinding
from app.store.commands import Query
from app.store.holds import Claimed
from app.store.server_starts import KeptClaim, Reclaimed
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, by_order, by_value
from tests.contract.store_rows import Plain, plain
from tests.stores import redis_store

SOON = timedelta(milliseconds=1)


HOUR = timedelta(hours=1)


STEPS = 50
"""The steps of one history."""


MOST_STEPS = int(os.environ.get("MACHINE_STEPS", "2000"))
"""The steps of all histories of one test; MACHINE_STEPS=1000000 tries a million, which takes hours."""


DEVICES = ("dock-1", "dock-2")


NODES = ("node-a", "node-b", "node-c", "node-d", "node-e", "node-f")


nodes = st.sampled_from(NODES)


devices = st.sampled_from(DEVICES)


texts = st.sampled_from([None, b"null", b'{"code":0}', b'"%s\\n"', b'"' + b"x" * 5000 + b'"'])


answers = st.sampled_from([CommandState.SUCCEEDED, CommandState.FAILED, CommandState.RUNNING])


ends = st.sampled_from([CommandState.TIMED_OUT, CommandState.CANCELLED, CommandState.UNSENT, CommandState.SUCCEEDED])


findings = st.sampled_from(
    [
        ProbeFinding(CommandState.SUCCEEDED, ProbeEvidence.GOAL, "d/dock 1/ö", 17, {"a.b": "wide open\0ü", "n": 1}, 90),
        ProbeFinding(CommandState.SUCCEEDED, ProbeEvidence.BOUND, "d/state", 18, {"a.b": "%s"}, 91),
        ProbeFinding(CommandState.FAILED, ProbeEvidence.BOUND, "d/state", 19, {"a.b": None}),
        ProbeFinding(CommandState.FAILED, ProbeEvidence.NOT_DONE, "d/state", 2**53, {}),
    ]
)


lanes = st.sampled_from(
    [
        None,
        None,
        CommandLane("one", LaneOrder.FIFO, excluded_by=("nine", "ten")),
        CommandLane("two", LaneOrder.LATEST),
        CommandLane("five", LaneOrder.LIFO),
        CommandLane("six", LaneOrder.FIFO_ACK),
        CommandLane("four", LaneOrder.FIFO, rest=MINUTE),
        CommandLane("three", LaneOrder.PARALLEL, 2),
        CommandLane("seven", LaneOrder.PARALLEL, 2, pace=MINUTE),
        CommandLane("eight", LaneOrder.FIFO, stops=True),
        CommandLane("nine", LaneOrder.LIFO, excludes=("one", "ten"), excluded_by=("ten",), stops=True),
        CommandLane("ten", LaneOrder.PARALLEL, 2, excludes=("nine", "one"), excluded_by=("nine",)),
        CommandLane("eleven", LaneOrder.FIFO_ACK, stops=True),
    ]
)


def places(device: str) -> st.SearchStrategy[tuple[Expectation, ...]]:
    return st.sampled_from(
        [
            (),
            (by_order(device),),
            (by_value("v1", device),),
            (by_value("v2", device), by_order(device, "ack")),
            (Expectation(f"{device}/events", Correlation.ID), by_value("v1", device), by_order(device)),
        ]
    )


@dataclass
class Stage:
    """The parts that outlive a history: connections are expensive."""

    runner: asyncio.Runner
    client: Redis
    redis: tuple[StateStore, StateStore]
    folder: Path
    steps: int = 0

    async def claim(self, store: StateStore, command_id: str, node: str, token: str, *, forgets: bool) -> object:
        """Claim a command. If it `forgets`, have Redis be as it was before, and tell it of the claim."""
        if not forgets:
            return await store.claim(command_id, node, token)
        before = [(key, await self.client.dump(key), await self.client.pttl(key)) for key in await self.client.keys()]
        claimed = await store.claim(command_id, node, token)
        if isinstance(claimed, Claimed) and store in self.redis:
            await self.client.flushall()
            for key, value, left in before:
                if value is not None:
                    await self.client.restore(key, max(0, left), value)
            assert await store.starts.reclaim(KeptClaim(claimed, token), node) in (Reclaimed.AGAIN, Reclaimed.KEPT)
        return claimed

    def run(self, step: Awaitable[Any]) -> Plain:
        """Return what the step returned or raised, without instants."""

        async def outcome() -> Plain:
            try:
                return plain(await step)
            except HomingError as error:
                return plain(error)

        return self.runner.run(outcome())


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    url: str = request.getfixturevalue("redis_server").url
    with asyncio.Runner() as runner:

        async def opened() -> Stage:
            patient = timedelta(minutes=1)  # what is compared is what the stores do, not how fast
            stores = tuple(redis_store(url, budget=patient) for _ in range(2))
            for store in stores:
                await store.start()
            return Stage(runner, Redis.from_url(url), (stores[0], stores[1]), tmp_path)

        stage = runner.run(opened())
        yield stage
        for store in stage.redis:
            runner.run(store.close())
        runner.run(stage.client.aclose())


def with_gone(outcome: Plain) -> Plain:
    return (*outcome[:2], "gone") if outcome and b'"gone"' in (outcome[4] or b"") else outcome


async def all_pages(store: StateStore, query: Query) -> list[Any]:
    commands: list[Any] = []
    while True:
        page = await store.list_commands(query)
        commands += page.commands
        if page.cursor is None:
            return commands
        query = replace(query, cursor=page.cursor)
