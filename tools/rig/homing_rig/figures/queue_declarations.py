"""The cost of declaring a queue where many are declared: commands to Redis and bytes, which no other work disturbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import cycle
from secrets import token_hex
from time import process_time
from typing import Annotated, Final

from redis.asyncio import Redis
from typer import Option

from app.core.queues.model import QueueOptions, TopicRoute
from app.queues.book import QueueBook
from app.runtime.system import SystemClock
from app.store.redis.queues import RedisQueues
from homing_rig.figures.kit import Findings
from homing_rig.services import RedisProcess

SIZES: Final = (10, 100, 990)
"""The numbers of queues that are there already; the last one leaves room below the bound of 1,000."""
ROUTES: Final = 10
DATABASE: Final = "events"


async def declaring(
    findings: Findings,
    *,
    each: Annotated[int, Option(min=1, max=10, help="The number of declarations that are measured.")] = 10,
) -> None:
    """A declaration beside 10, 100 and 990 other queues, at one node, and at each of three nodes in turn."""
    with RedisProcess() as redis:
        async with Redis.from_url(redis.url) as client:
            for size in SIZES:
                await client.flushall()
                async with _books(redis.node_url, 3) as books:
                    for number in range(size):
                        await _declare(books[0], f"there-{number}")
                    for side, askers in (("at one node", books[:1]), ("at three nodes in turn", books)):
                        await _measure(findings, client, askers, f"{size} queues, {side}", each)


async def _measure(findings: Findings, client: Redis, books: Sequence[QueueBook], name: str, each: int) -> None:
    names = [f"new-{token_hex(4)}" for _ in range(each)]
    for book in books:
        await book.refresh()
    before, spent = await client.info("stats"), process_time()
    for new, book in zip(names, cycle(books), strict=False):
        await _declare(book, new)
    spent, after = process_time() - spent, await client.info("stats")
    commands = after["total_commands_processed"] - before["total_commands_processed"] - 1
    moved = sum(after[f"total_net_{way}_bytes"] - before[f"total_net_{way}_bytes"] for way in ("input", "output"))
    findings.figure(f"commands to Redis for a declaration, {name}", commands / each)
    findings.figure(f"bytes to and from Redis for a declaration, {name}", moved / each)
    findings.figure(f"processor of the node for a declaration, {name}", spent * 1000 / each, " ms")
    for new in names:
        await books[0].refresh()
        await books[0].delete(books[0].get("", new))


async def _declare(book: QueueBook, name: str) -> None:
    routes = tuple(TopicRoute(DATABASE, f"nobody/{name}/{number}") for number in range(ROUTES))
    await book.declare("", name, QueueOptions(routes=routes), 1, 1, lambda there: there is None)


@asynccontextmanager
async def _books(url: str, number: int) -> AsyncIterator[list[QueueBook]]:
    """Give the books of so many nodes, each over a connection of its own."""
    async with AsyncExitStack() as stack:
        books: list[QueueBook] = []
        for _ in range(number):
            store = RedisQueues(
                url,
                clock=SystemClock(),
                counters=Counter(),
                new_life=lambda: token_hex(4),
                budget=timedelta(seconds=30),
            )
            await store.start()
            stack.push_async_callback(store.close)
            books.append(QueueBook(store, [DATABASE], lambda: token_hex(13)))
        yield books
