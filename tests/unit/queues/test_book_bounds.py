"""Bounds of what may be declared: in a cluster, and by one tenant, which are nobody else's."""

from __future__ import annotations

from itertools import count

import pytest

from app.core.errors import CapacityError
from app.core.queues.model import QueueOptions, TopicRoute
from app.queues.book import MOST_EXCHANGES_OF_TENANT, MOST_OF_TENANT, MOST_QUEUES, QueueBook
from app.store.memory.queues import MemoryDeclared

OPTIONS = QueueOptions(routes=(TopicRoute("events", "site/+/alarm"),))


@pytest.fixture
def book() -> QueueBook:
    ids = count()
    return QueueBook(MemoryDeclared(), ["events"], lambda: f"01ID{next(ids)}")


async def declare(book: QueueBook, tenant: str, name: str) -> bool:
    _, new = await book.declare(tenant, name, OPTIONS, 0, 1, lambda _: False)
    return new


async def test_a_tenant_has_a_hundred_queues_and_the_cluster_a_thousand(book: QueueBook) -> None:
    for number in range(MOST_OF_TENANT):
        assert await declare(book, "north", f"q{number}")
    with pytest.raises(CapacityError, match="tenant 'north' has 100 queues"):
        await declare(book, "north", "more")
    assert not await declare(book, "north", "q0"), "one that is there may be declared again"
    for number in range(MOST_QUEUES - MOST_OF_TENANT):
        assert await declare(book, "", f"q{number}")
    for tenant in ("", "south"):
        with pytest.raises(CapacityError, match="there are 1000 queues"):
            await declare(book, tenant, "more")
    assert await book.delete(book.get("north", "q0"))
    assert await declare(book, "north", "more")


async def test_a_tenant_has_fifty_exchanges_and_the_cluster_a_thousand(book: QueueBook) -> None:
    for number in range(MOST_EXCHANGES_OF_TENANT):
        await book.declare_exchange("north", f"x{number}", "topic", 1)
    with pytest.raises(CapacityError, match="tenant 'north' has 50 exchanges"):
        await book.declare_exchange("north", "more", "topic", 1)
    assert not (await book.declare_exchange("north", "x0", "topic", 1))[1]
    for number in range(MOST_QUEUES - MOST_EXCHANGES_OF_TENANT):
        await book.declare_exchange("", f"x{number}", "topic", 1)
    with pytest.raises(CapacityError, match="there are 1000 exchanges"):
        await book.declare_exchange("", "more", "topic", 1)
