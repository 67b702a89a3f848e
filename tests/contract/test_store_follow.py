"""The promises of `follow`, for every state store: the sentences of the port (app/store/command_history.py)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.commands.history import EDGE, MOST_REPORT_BYTES, MOST_REPORTS
from app.core.errors import CommandNotFoundError
from app.store.command_history import MOST_WATCHING
from app.store.state import StateStore
from tests.contract.store_backends import MOMENT, Backend, answer, registration
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE

SHORT = timedelta(seconds=2)


def percent(number: int) -> bytes:
    return b'{"percent":%d}' % number


async def test_reports_are_numbered_in_the_order_in_which_they_were_recorded(store: StateStore) -> None:
    one = registration()
    registered = await store.register(one)
    for number in (10, 40, 90):
        await store.respond(answer(one, CommandState.RUNNING, percent(number)), "node-b")
    account = await store.follow(one.command_id)
    assert account.count == account.last == 3
    assert [(report.number, report.progress) for report in account.reports] == [
        (1, percent(10)),
        (2, percent(40)),
        (3, percent(90)),
    ]
    assert [report.at for report in account.reports] == sorted(report.at for report in account.reports)
    assert account.reports[0].at >= registered.created_at  # type: ignore[union-attr]  # nothing was joined
    assert account.command.state is CommandState.RUNNING
    assert not account.complete
    again = await store.follow(one.command_id, 2)
    assert [report.number for report in again.reports] == [3]
    assert (await store.follow(one.command_id, 3)).reports == []


async def test_the_outcome_and_a_late_response_have_the_numbers_after_the_reports(store: StateStore) -> None:
    one, other = registration(), registration()
    await store.register(one)
    await store.register(other)
    await store.respond(answer(one, CommandState.RUNNING, percent(10)), "node-b")
    await store.respond(answer(one), "node-b")
    account = await store.follow(one.command_id)
    assert (account.count, account.last, account.complete) == (1, 2, True)
    assert account.command.result == b'{"code":0}'
    await store.finish(other.command_id, CommandState.CANCELLED, "node-a")
    account = await store.follow(other.command_id)
    assert (account.count, account.last, account.complete) == (0, 1, False)
    await store.respond(answer(other), "node-b")
    account = await store.follow(other.command_id)
    assert (account.count, account.last, account.complete) == (0, 2, True)


async def test_a_report_that_comes_twice_in_a_row_is_one(store: StateStore) -> None:
    one = registration()
    await store.register(one)
    for number in (10, 10, 20, 10):
        await store.respond(answer(one, CommandState.RUNNING, percent(number)), "node-b")
    account = await store.follow(one.command_id)
    assert [report.progress for report in account.reports] == [percent(10), percent(20), percent(10)]


async def test_progress_without_a_report_is_one_event(store: StateStore) -> None:
    one = registration()
    await store.register(one)
    for _ in range(2):
        await store.respond(answer(one, CommandState.RUNNING, None), "node-b")
    assert [report.progress for report in (await store.follow(one.command_id)).reports] == [None]


async def test_a_long_history_is_thinned_in_the_middle(store: StateStore) -> None:
    one = registration()
    await store.register(one)
    many = 3 * MOST_REPORTS
    for number in range(1, many + 1):
        await store.respond(answer(one, CommandState.RUNNING, percent(number)), "node-b")
    account = await store.follow(one.command_id)
    kept = [report.number for report in account.reports]
    assert account.count == many
    assert len(kept) <= MOST_REPORTS
    assert kept[:EDGE] == list(range(1, EDGE + 1))
    assert kept[-EDGE:] == list(range(many - EDGE + 1, many + 1))
    assert kept == sorted(set(kept))
    assert [report.progress for report in account.reports] == [percent(number) for number in kept]
    assert len(kept[EDGE:-EDGE]) >= EDGE


async def test_a_long_report_is_kept_while_it_is_the_latest(store: StateStore) -> None:
    one = registration()
    await store.register(one)
    long = b'"%b"' % (b"x" * MOST_REPORT_BYTES)
    await store.respond(answer(one, CommandState.RUNNING, long), "node-b")
    assert [report.progress for report in (await store.follow(one.command_id)).reports] == [long]
    await store.respond(answer(one, CommandState.RUNNING, percent(1)), "node-b")
    assert [report.progress for report in (await store.follow(one.command_id)).reports] == [None, percent(1)]


async def test_a_node_that_watches_is_told_of_progress_outcome_and_late_response(
    backend: Backend, store: StateStore
) -> None:
    one = registration(home="home")
    await store.register(one)
    await store.follow(one.command_id, watcher="far")
    await store.follow(one.command_id, watcher="home")
    await backend.woken()
    await store.respond(answer(one, CommandState.RUNNING, percent(1)), "node-b")
    assert sorted(await backend.told()) == [("far", one.command_id), ("home", one.command_id)]
    await store.respond(answer(one, CommandState.RUNNING, percent(2)), "far")
    assert await backend.told() == [("home", one.command_id)]
    await store.finish(one.command_id, CommandState.CANCELLED, "node-b")
    assert sorted(node for node, _ in await backend.woken()) == ["far", "home"]
    await store.respond(answer(one), "node-b")
    assert sorted(await backend.told()) == [("far", one.command_id), ("home", one.command_id)]


async def test_of_many_nodes_that_watch_the_latest_are_told(backend: Backend, store: StateStore) -> None:
    one = registration(home="home")
    await store.register(one)
    nodes = [f"node-{number}" for number in range(MOST_WATCHING + 3)]
    for node in (*nodes, nodes[-1]):
        await store.follow(one.command_id, watcher=node)
    await store.respond(answer(one, CommandState.RUNNING, percent(1)), "other")
    assert [node for node, _ in await backend.told()] == nodes[-MOST_WATCHING:]


async def test_a_command_that_is_not_there_is_not_followed(store: StateStore) -> None:
    for identity in (registration().command_id, "nonsense"):
        with pytest.raises(CommandNotFoundError):
            await store.follow(identity, watcher="node-a")


async def test_the_history_goes_with_the_record_of_what_was_answered(backend: Backend, store: StateStore) -> None:
    one = registration(timeout=SHORT, retention=MOMENT)
    await store.register(one)
    await store.respond(answer(one, CommandState.RUNNING, percent(1)), "node-b")
    await store.respond(answer(one), "node-b")
    await backend.advance(SHORT + 2 * MOMENT)
    assert await backend.size() == 0


async def test_the_history_stays_with_the_record_of_what_was_swept_late(backend: Backend, store: StateStore) -> None:
    one = registration(timeout=MOMENT, retention=SHORT)
    await store.register(one)
    await store.respond(answer(one, CommandState.RUNNING, percent(1)), "node-b")
    await backend.advance(SHORT / 2)
    assert len(await store.sweep(ALL_PARTITIONS, "node-b", NO_GRACE)) == 1
    await backend.advance(SHORT * 0.8)  # longer than the retention after the deadline
    assert len((await store.follow(one.command_id)).reports) == 1
    await backend.advance(SHORT / 2)
    assert await backend.size() == 0
