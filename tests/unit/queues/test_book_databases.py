"""Routes of databases that were there once: none is added, and a queue that has one can be changed all the same."""

from __future__ import annotations

from itertools import count

import pytest

from app.core.errors import InvalidInputError
from app.core.queues.exchanges import KeyRoute
from app.core.queues.model import QueueOptions, TopicRoute
from app.queues.book import QueueBook
from app.store.memory.queues import MemoryDeclared

GONE = TopicRoute("old", "site/+/alarm")
HERE = TopicRoute("events", "site/+/alarm")
SAID = KeyRoute("", "ops", "low.*", "topic")


@pytest.fixture
async def book() -> QueueBook:
    """After the database `old`, in which the exchange keeps what is said, was taken away."""
    ids, declared = count(), MemoryDeclared()
    before = QueueBook(declared, ["old", "events"], lambda: f"01ID{next(ids)}")
    await before.declare_exchange("", "ops", "topic", 1)
    await before.declare("", "alarms", QueueOptions(routes=(GONE, HERE)), 0, 1, lambda _: False)
    return QueueBook(declared, ["events"], lambda: f"01ID{next(ids)}")


async def test_no_route_of_an_exchange_whose_database_is_gone_is_added(book: QueueBook) -> None:
    with pytest.raises(InvalidInputError, match="'ops' keeps its messages in 'old', which is not there") as declaring:
        await book.declare("", "pager", QueueOptions(routes=(HERE, SAID)), 0, 1, lambda _: False)
    assert declaring.value.field == "routes.1.exchange"
    with pytest.raises(InvalidInputError) as binding:
        await book.reroute("", "alarms", [SAID], 0, lambda _: None, add=True)
    assert binding.value.field == "routes.0.exchange"


async def test_a_queue_with_a_route_of_a_database_that_is_gone_gets_others_and_loses_it(book: QueueBook) -> None:
    more = TopicRoute("events", "site/+/door")
    with pytest.raises(InvalidInputError) as binding:
        await book.reroute("", "alarms", [more, GONE], 0, lambda _: None, add=True)
    assert binding.value.field == "routes.1.database"  # as the call counts them
    assert (await book.reroute("", "alarms", [more], 0, lambda _: None, add=True)).options.routes == (HERE, more, GONE)
    assert (await book.reroute("", "alarms", [GONE], 0, lambda _: None, add=False)).options.routes == (HERE, more)
