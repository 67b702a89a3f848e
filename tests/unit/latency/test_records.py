"""The records in the log after commands have run: every column, by the manual clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome, Recorded
from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.latency.schema import COLUMNS
from app.observers.journal import MOST_WAITING, Journal
from app.store.commands import Joined, Registered
from app.store.holds import Claimed
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import registration
from tests.unit.assembly import (
    AS_LONG_AS_IT_TAKES,
    Assembly,
    Lamp,
    ManualClock,
    StoreFactory,
    assemble,
    at_once,
    never,
    plain_store,
    request,
)
from tests.waiting import turns

SECOND = timedelta(seconds=1)
Json = dict[str, Any]

START = datetime(2023, 11, 14, 22, 30, tzinfo=UTC)
"""The manual clock shows 1000 s at 1,700,001,000 s since the epoch."""


def at(seconds: float) -> datetime:
    """The store's time when the manual clock shows 1000 s and so many more."""
    return START + timedelta(seconds=seconds)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def logging(folder: Path, size: int = 1, make_store: StoreFactory = plain_store) -> Assembly:
    """Nodes with a log that know the store's time."""
    assembly = await assemble(size, make_store, log_dir=str(folder))
    for number in range(size):
        now = assembly.clock.now
        journal_of(assembly, number)._log.store_clock.learn(now, now, await assembly.store.now())
    return assembly


async def written(assembly: Assembly, folder: Path) -> list[Json]:
    """All records, in order of the instant, after every node that has a log has stopped it."""
    for member in assembly.members:
        if member.journal is not None:
            await member.journal.close()
    table = pq.ParquetDataset(folder, partitioning=None).read() if list(folder.rglob("*.parquet")) else None
    rows: list[Json] = [] if table is None else table.to_pylist()
    return sorted(rows, key=lambda row: (row["recorded_at"], row["kind"]))


class Slow(MemoryStateStore):
    """Each step takes a while on the manual clock, half of it on the way there."""

    clock: ManualClock
    seconds = 0.0

    async def register(self, registration: Registration) -> Registered | Joined:
        self.clock.advance(self.seconds / 2)
        registered = await super().register(registration)
        self.clock.advance(self.seconds / 2)
        return registered

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        self.clock.advance(self.seconds / 2)
        recorded = await super().respond(answer, receiver, open_only=open_only)
        self.clock.advance(self.seconds / 2)
        return recorded


def slow(seconds: float) -> Callable[[ManualClock, Callable[[str, Outcome], None]], Slow]:
    def make(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> Slow:
        store = Slow(clock, wake=wake)
        store.clock, store.seconds = clock, seconds
        return store

    return make


async def test_the_record_of_a_command_that_came_back_home(folder: Path) -> None:
    assembly = await logging(folder, make_store=slow(0.004))
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member, clock = assembly.members[0], assembly.clock
    invocation = await member.invoker.invoke(request(), park=True)  # 0 to 4 ms
    await turns()
    clock.advance(0.020)
    lamp.say(lamp.received[0], "running", progress=10)  # 24 to 28 ms
    await turns()
    clock.advance(0.072)
    lamp.say(lamp.received[0])  # 100 to 104 ms
    waiting = asyncio.create_task(invocation.wait(AS_LONG_AS_IT_TAKES))
    assert (await waiting).state is CommandState.SUCCEEDED
    (row,) = await written(assembly, folder)
    assert list(row) == [one.name for one in COLUMNS]
    assert row.pop("request_bytes") > 100
    assert row == {
        "kind": "outcome",
        "command_id": invocation.command.id,
        "device_id": "lamp-1",
        "profile": "homing",
        "method": "blink",
        "outcome": "succeeded",
        "error_code": None,
        "home_node": "n1",
        "receiving_node": "n1",
        "writing_node": "n1",
        "forwarded": False,
        "correlation": "id",
        "attempt": 1,
        "response_bytes": row_size(lamp.received[0]),
        "registered_at": at(0.002),
        "published_at": at(0.004),
        "acknowledged_at": at(0.004),
        "progressed_at": at(0.028),
        "received_at": at(0.100),
        "recorded_at": at(0.102),
        "woken_at": at(0.104),
        "delivered_at": at(0.104),
        "deadline_at": at(10.002),
        "register_us": 4_000,
        "publish_us": 0,
        "respond_us": 100_000,
        "record_us": 4_000,
        "deliver_us": 0,
        "total_us": 104_000,
    }


def row_size(command: Json) -> int:
    return len(json.dumps({"id": command["id"], "status": "ok", "result": command["params"]}))


async def test_the_record_of_a_forwarded_command_has_what_the_receiving_node_knew(folder: Path) -> None:
    assembly = await logging(folder, 2, slow(0.002))
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    home = assembly.members[0]
    for _ in range(2):
        await home.invoker.invoke(request(), park=False)
        await turns()
    for command in lamp.received:
        assembly.clock.advance(0.010)
        lamp.say(command)
        await turns()
    rows = await written(assembly, folder)
    assert sorted(row["receiving_node"] for row in rows) == ["n1", "n2"]
    assert {row["home_node"] for row in rows} == {row["writing_node"] for row in rows} == {"n1"}
    (forwarded,) = [row for row in rows if row["forwarded"]]
    assert forwarded["receiving_node"] == "n2"
    assert forwarded["recorded_at"] - forwarded["received_at"] == timedelta(milliseconds=1)
    assert (forwarded["correlation"], forwarded["record_us"]) == ("id", None)
    assert forwarded["response_bytes"] == row_size(lamp.received[0])
    assert forwarded["woken_at"] >= forwarded["recorded_at"]


async def test_a_receiving_node_without_a_log_tells_nothing_more_than_its_name(folder: Path) -> None:
    assembly = await assemble(2, log_dir=str(folder), logging=lambda node_id: node_id == "n1")
    await Lamp(assembly.broker, at_once).start()
    for _ in range(2):  # the broker gives the responses to both nodes in turn
        await (await assembly.members[0].invoker.invoke(request(), park=True)).wait(AS_LONG_AS_IT_TAKES)
    rows = await written(assembly, folder)
    (row,) = [one for one in rows if one["receiving_node"] == "n2"]
    assert (row["received_at"], row["correlation"]) == (None, "id")  # the record has what it was matched by
    assert row["total_us"] == 0


async def test_nobody_parked_means_no_delivery(folder: Path) -> None:
    assembly = await logging(folder)
    await Lamp(assembly.broker, at_once).start()
    await assembly.members[0].invoker.invoke(request(), park=False)
    await turns()
    (row,) = await written(assembly, folder)
    assert (row["delivered_at"], row["deliver_us"], row["total_us"]) == (None, None, 0)


async def test_a_caller_who_leaves_in_the_moment_of_the_outcome_costs_no_record(folder: Path) -> None:
    assembly = await logging(folder)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    waiting = asyncio.create_task(invocation.wait(AS_LONG_AS_IT_TAKES))
    await turns()
    outcome = (await assembly.store.finish(invocation.command.id, CommandState.TIMED_OUT, "n1")).outcome
    member.open_commands.complete(outcome)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (row,) = await written(assembly, folder)
    assert (row["outcome"], row["delivered_at"]) == ("timed_out", None)


async def test_a_timeout_has_its_code_and_no_response(folder: Path) -> None:
    assembly = await logging(folder)
    member = assembly.members[0]
    expiring = asyncio.create_task(member.expirer.run())
    invocation = await member.invoker.invoke(request(timeout=SECOND), park=True)
    waiting = asyncio.create_task(invocation.wait(AS_LONG_AS_IT_TAKES))
    await turns()
    assembly.clock.advance(1.5)
    await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT, b'{"code":"timed_out"}')
    await waiting
    expiring.cancel()
    (row,) = await written(assembly, folder)
    assert (row["outcome"], row["error_code"], row["receiving_node"]) == ("timed_out", "timed_out", None)
    assert (row["correlation"], row["response_bytes"], row["respond_us"], row["record_us"]) == (None,) * 4
    assert (row["deadline_at"], row["recorded_at"], row["total_us"]) == (at(1), at(1.5), 1_500_000)


async def test_calls_that_join_are_counted(folder: Path) -> None:
    assembly = await logging(folder)
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    first, *_ = [await assembly.members[0].invoker.invoke(request(idempotency_key="k"), park=True) for _ in range(3)]
    await turns()
    lamp.say(lamp.received[0])
    await first.wait(AS_LONG_AS_IT_TAKES)
    (row,) = await written(assembly, folder)
    assert row["attempt"] == 3


async def test_a_late_response_and_further_ones_have_records_of_their_own(folder: Path) -> None:
    assembly = await logging(folder)
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(timeout=SECOND), park=False)
    await turns()
    assembly.clock.advance(1)
    await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT, b'{"code":"timed_out"}')
    for _ in range(3):
        assembly.clock.advance(1)
        lamp.say(lamp.received[0])
        await turns()
    rows = await written(assembly, folder)
    assert [row["kind"] for row in rows] == ["outcome", "late", "duplicate", "duplicate"]
    late = rows[1]
    facts = {name: value for name, value in late.items() if value is not None}
    assert facts == {
        "kind": "late",
        "command_id": invocation.command.id,
        "device_id": "lamp-1",
        "outcome": "timed_out",
        "home_node": "n1",
        "receiving_node": "n1",
        "writing_node": "n1",
        "forwarded": False,
        "correlation": "id",
        "attempt": 1,
        "response_bytes": row_size(lamp.received[0]),
        "received_at": at(2),
        "recorded_at": at(2),
        "record_us": 0,
    }


class ForgetsToAnswer(MemoryStateStore):
    """The reply to the first response is lost; the step is taken again."""

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        await super().respond(answer, receiver, open_only=open_only)
        return await super().respond(answer, receiver, open_only=open_only)


async def test_a_step_that_was_taken_twice_is_no_duplicate(folder: Path) -> None:
    assembly = await logging(folder, make_store=lambda clock, wake: ForgetsToAnswer(clock, wake=wake))
    await Lamp(assembly.broker, at_once).start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert [row["kind"] for row in await written(assembly, folder)] == ["outcome"]


async def test_what_could_not_be_sent_has_a_record_too(folder: Path) -> None:
    assembly = await logging(folder)
    member = assembly.members[0]

    def refuse(publication: Publication) -> None:
        raise BrokerUnavailableError("the send window is full")

    member.client.publish = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(BrokerUnavailableError):
        await member.invoker.invoke(request(), park=True)
    (row,) = await written(assembly, folder)
    assert (row["outcome"], row["error_code"], row["published_at"]) == ("unsent", "not_sent", None)
    assert (row["home_node"], row["method"], row["registered_at"]) == ("n1", "blink", at(0))


class TestForTheDead:
    async def test_the_node_that_received_the_response_writes_for_a_dead_home(self, folder: Path) -> None:
        assembly, lamp = await self.with_a_dead_home(folder)
        for _ in range(4):
            assembly.clock.advance(0.001)
            lamp.say(lamp.received[0])
            await turns()
        rows = [row for row in await written(assembly, folder) if row["kind"] == "outcome"]
        assert [(row["outcome"], row["home_node"], row["writing_node"]) for row in rows] == [("succeeded", "n1", "n2")]
        (row,) = rows
        assert (row["forwarded"], row["receiving_node"], row["correlation"]) == (True, "n2", "id")
        assert (row["profile"], row["method"], row["registered_at"]) == ("homing", "blink", at(0))
        assert row["received_at"] is not None
        assert row["record_us"] == 0
        assert row["total_us"] is None

    async def test_the_node_that_swept_it_writes_for_a_dead_home(self, folder: Path) -> None:
        assembly, _ = await self.with_a_dead_home(folder)
        await self.sweep(assembly)
        rows = await written(assembly, folder)
        assert [(row["outcome"], row["writing_node"], row["error_code"]) for row in rows] == [
            ("timed_out", "n2", "timed_out")
        ]

    async def test_the_time_of_a_held_command_begins_with_its_claim(self, folder: Path) -> None:
        assembly, _ = await self.with_a_dead_home(folder)
        held = registration(held=timedelta(hours=8), home="n1", timeout=timedelta(seconds=10))
        await assembly.store.register(held)
        assembly.clock.advance(3600)
        assert isinstance(await assembly.store.claim(held.command_id, "n1", "token"), Claimed)
        await self.sweep(assembly)
        (row,) = [row for row in await written(assembly, folder) if row["command_id"] == held.command_id]
        assert (row["outcome"], row["writing_node"]) == ("timed_out", "n2")
        assert (row["registered_at"], row["deadline_at"]) == (at(3600), at(3610))

    async def test_nobody_writes_for_a_home_that_lives(self, folder: Path) -> None:
        assembly, _ = await self.with_a_dead_home(folder, dead=False)
        await self.sweep(assembly)
        rows = await written(assembly, folder)
        assert [row["writing_node"] for row in rows] == ["n1"]  # it was woken

    async def test_what_waits_to_be_looked_at_is_bounded(self, folder: Path) -> None:
        assembly, _ = await self.with_a_dead_home(folder)
        journal = journal_of(assembly, 1)
        for number in range(MOST_WAITING + 3):
            journal.foreign(Outcome(f"042-{number:026}", CommandState.TIMED_OUT, 1))
        assert journal.fills()["latency_foreign"] == (MOST_WAITING, MOST_WAITING)
        assert assembly.members[1].counters["latency.dropped_foreign"] == 3
        assert await written(assembly, folder) == []  # none of them is on record

    async def with_a_dead_home(self, folder: Path, *, dead: bool = True) -> tuple[Assembly, Lamp]:
        """Two nodes; the first sent a command, and died."""
        assembly = await logging(folder, 2)
        lamp = Lamp(assembly.broker, never)
        await lamp.start()
        await assembly.members[0].invoker.invoke(request(), park=False)
        await turns()
        journal = journal_of(assembly, 1)
        if dead:
            assembly.lost_wake_ups = True
            assembly.broker.disconnect("n1")
            assembly.members[0].journal = journal  # what it had in memory is lost
            journal._gone = lambda node_id: node_id == "n1"
        return assembly, lamp

    async def sweep(self, assembly: Assembly) -> None:
        assembly.clock.advance(20)
        for outcome in await assembly.store.sweep(range(256), "n2", timedelta()):
            assembly.members[1].open_commands.ended(outcome)


def journal_of(assembly: Assembly, number: int) -> Journal:
    journal = assembly.members[number].journal
    assert journal is not None
    return journal
