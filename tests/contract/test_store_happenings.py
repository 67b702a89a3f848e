"""The promises of the port for all commands together, for every state store (app/store/command_stream.py)."""

from __future__ import annotations

from datetime import timedelta

from app.core.commands.command import CommandState
from app.core.commands.stream import (
    MOST_HAPPENINGS,
    MOST_TEXT,
    ROUND,
    CommandChange,
    CommandChangeKind,
    Marks,
    Position,
)
from app.core.identifiers import PARTITIONS, partition_of
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, registration
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE

LIFE = timedelta(seconds=5)
"""In a real Redis it passes, and must not pass before the test says so."""
FROM_THE_BEGINNING = Marks.since(1)


async def all_of(store: StateStore, marks: Marks = FROM_THE_BEGINNING) -> list[CommandChange]:
    """Everything after these marks, page by page."""
    found: list[CommandChange] = []
    while True:
        page = await store.changes.after(marks)
        found += page.changes
        marks = page.marks
        if page.complete:
            return found


async def test_nothing_is_kept_while_nobody_follows(backend: Backend, store: StateStore) -> None:
    one = registration(timeout=LIFE, retention=MOMENT)
    await store.register(one)
    await store.respond(answer(one), "node-b")
    assert await all_of(store) == []
    await backend.advance(LIFE + 2 * MOMENT)
    assert await backend.size() == 0


async def test_progress_outcome_and_late_response_are_told_as_the_history_counts_them(store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    one, other = registration("dock-1"), registration("dock-2")
    await store.register(one)
    await store.register(other)
    await store.respond(answer(one, CommandState.RUNNING, b'{"percent":10}'), "node-b")
    await store.respond(answer(one, CommandState.FAILED, None, b'{"code":"x","message":"y"}'), "node-b")
    await store.finish(other.command_id, CommandState.CANCELLED, "node-a")
    await store.respond(answer(other), "node-b")
    found = sorted(await all_of(store), key=lambda each: each.command_id.partition("-")[2])
    assert [(each.kind, each.command_id, each.number, each.state, each.text) for each in found] == [
        (CommandChangeKind.PROGRESS, one.command_id, 1, CommandState.RUNNING, b'{"percent":10}'),
        (CommandChangeKind.OUTCOME, one.command_id, 2, CommandState.FAILED, b'{"code":"x","message":"y"}'),
        (CommandChangeKind.OUTCOME, other.command_id, 1, CommandState.CANCELLED, None),
        (CommandChangeKind.LATE, other.command_id, 2, CommandState.CANCELLED, b'{"state":"succeeded","error":null}'),
    ]
    first = found[0]
    assert (first.device_id, first.profile, first.method) == (one.device_id, one.profile, one.method)
    assert (await store.read(one.command_id)).finished_at == found[1].at
    together = [each.position for each in await all_of(store)]
    assert together == sorted(together)


async def test_a_deadline_that_another_node_sees_is_told(backend: Backend, store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    one = registration(timeout=MOMENT)
    await store.register(one)
    await backend.advance(2 * MOMENT)
    await store.sweep(ALL_PARTITIONS, "node-b", NO_GRACE)
    (told,) = await all_of(store)
    assert (told.command_id, told.state) == (one.command_id, CommandState.TIMED_OUT)
    assert told.text is not None


async def test_what_is_no_news_is_not_told(store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    one = registration()
    await store.register(one)
    for _ in range(2):
        await store.respond(answer(one, CommandState.RUNNING, b"1"), "node-b")
    for _ in range(2):
        await store.respond(answer(one), "node-b")
    assert [each.number for each in await all_of(store)] == [1, 2]


async def test_a_long_text_stands_with_its_command_alone(store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    one = registration()
    await store.register(one)
    long = b'"%b"' % (b"x" * MOST_TEXT)
    await store.respond(answer(one, CommandState.RUNNING, long), "node-b")
    (told,) = await all_of(store)
    assert told.text is None
    assert (await store.read(one.command_id)).progress == long


async def test_reading_goes_on_after_what_was_read(store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    one = registration()
    await store.register(one)
    await store.respond(answer(one, CommandState.RUNNING, b"1"), "node-b")
    page = await store.changes.after(FROM_THE_BEGINNING)
    assert page.complete
    assert (await store.changes.after(page.marks)).changes == []
    await store.respond(answer(one, CommandState.RUNNING, b"2"), "node-b")
    assert [each.text for each in (await store.changes.after(page.marks)).changes] == [b"2"]
    (first,) = page.changes
    assert [each.text for each in await all_of(store, Marks.after(first.position))] == [b"2"]


async def test_whoever_knows_a_position_has_been_told_of_all_before_its_millisecond(store: StateStore) -> None:
    await store.changes.keep(MINUTE)
    busy, quiet = registration("dock-1"), registration("dock-2")
    assert partition_of("dock-1") != partition_of("dock-2")
    await store.register(busy)
    await store.register(quiet)
    for number in range(2 * ROUND):
        await store.respond(answer(busy, CommandState.RUNNING, b"%d" % number), "node-b")
        if number % 7 == 0:
            await store.respond(answer(quiet, CommandState.RUNNING, b"%d" % number), "node-b")
    everything = await all_of(store)
    marks, known = FROM_THE_BEGINNING, set[Position]()
    while True:
        page = await store.changes.after(marks)
        known |= {each.position for each in page.changes}
        if known:
            latest = max(known)
            assert {each.position for each in everything if each.position.ms < latest.ms} <= known
        marks = page.marks
        if page.complete:
            break
    assert known == {each.position for each in everything}
    assert len(known) == 2 * ROUND + len(range(0, 2 * ROUND, 7))


async def test_what_was_dropped_is_known(backend: Backend, store: StateStore) -> None:
    since = await store.changes.keep(MINUTE)
    assert since * 1000 <= await store.now()
    one = registration()
    await store.register(one)
    await backend.advance(MOMENT)
    for number in range(MOST_HAPPENINGS + 200):
        await store.respond(answer(one, CommandState.RUNNING, b"%d" % number), "node-b")
    kept = await all_of(store)
    assert MOST_HAPPENINGS <= len(kept) < MOST_HAPPENINGS + 200
    now = await store.changes.keep(MINUTE)
    assert since < kept[0].position.ms <= now <= kept[0].position.ms + 1  # others of its millisecond may be gone
    assert (await store.changes.after(FROM_THE_BEGINNING)).whole == now
    latest = Marks.after(kept[MOST_HAPPENINGS // 2].position)
    assert (await store.changes.after(latest)).whole <= since


async def test_it_ends_a_while_after_nobody_follows(backend: Backend, store: StateStore) -> None:
    since = await store.changes.keep(LIFE)
    one = registration(timeout=LIFE, retention=MOMENT)
    await store.register(one)
    await store.respond(answer(one), "node-b")
    assert await store.changes.keep(LIFE) == since
    assert len(await all_of(store)) == 1
    await backend.advance(LIFE + 2 * MOMENT)
    assert await all_of(store) == []
    assert await backend.size() == 0
    assert await store.changes.keep(LIFE) > since


def test_a_position_reads_as_it_is_written() -> None:
    position = Position(1_795_277_533_402, 2, PARTITIONS - 1)
    assert str(position) == "1795277533402-2.255"
    assert Position.parse(str(position)) == position
