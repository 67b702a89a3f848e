"""Keys of queues in Redis that somebody else wrote: every call ends, with an error that says so, or does its work.

None is a mistake of Homing, for such a mistake would end the node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from app.core.errors import StoreUnavailableError
from app.core.events.event import Shard
from app.core.queues import keys
from app.core.queues.loans import (
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    Reference,
    ReferenceGroup,
    SettleHow,
    Settlement,
)
from app.runtime.system import SystemClock
from app.store.declared import DocumentChange
from app.store.queues import TakeCall
from app.store.redis.queues import RedisQueues
from tests.contract.queue_places import lives
from tests.contract.test_event_keys_hostile import RUBBISH, another_content, another_type, type_of
from tests.services import RedisProcess
from tests.waiting import PATIENCE

SHARD = Shard("events", 0)
SOURCE = QueueSource("q", SHARD)
RULES = LendingRules(ordered=True, max_deliveries=1)
WISH = LoanWish(1, "w")
PARTS = ["window", "ready", "loans", "due", "later", "keys"]
KEYS = {
    **dict(zip(PARTS, keys.window(SOURCE), strict=True)),
    "consumers": keys.consumers(SOURCE),
    "call": keys.call(SOURCE, "n1"),
    "dying": keys.dying(SHARD)[0],
    "dying about": keys.dying(SHARD)[1],
    "declared": keys.DECLARED,
}
CALLS: dict[str, Callable[[RedisQueues], Awaitable[object]]] = {
    "feed": lambda one: one.feed(SOURCE, 0, 5, 6, [ReferenceGroup(0, (Reference(6, 6),))], 100),
    "take": lambda one: one.take(SOURCE, RULES, [WISH], TakeCall("n1", "9")),
    "take again": lambda one: one.take(SOURCE, RULES, [WISH], TakeCall("n1", "3")),
    "settle": lambda one: one.settle(SOURCE, RULES, "00000001", [Settlement(1, SettleHow.DONE)], 1000),
    "dismiss": lambda one: one.dismiss(SOURCE, "w"),
    "dying": lambda one: one.dying(SHARD, 10),
    "buried": lambda one: one.buried(SHARD, 10),
    "seek": lambda one: one.seek(SOURCE, 3),
    "redrive": lambda one: one.redrive(SOURCE, 3),
    "states": lambda one: one.states([SOURCE]),
    "lent until": lambda one: one.lent_until([SOURCE]),
    "forget": lambda one: one.forget([SOURCE]),
    "version": lambda one: one.version(),
    "read": lambda one: one.read(),
    "read since": lambda one: one.read(7),
    "apply": lambda one: one.apply([DocumentChange("q /b", b"{}")], 0),
}


async def _filled(queues: RedisQueues) -> None:
    """Let there be something of each kind."""
    await queues.apply([DocumentChange("q /a", b"{}")], 0)
    group = ReferenceGroup(0, (Reference(1, 1), Reference(2, 2), Reference(3, 3), Reference(4, 1)))
    await queues.feed(SOURCE, 0, 0, 5, [group], 100)
    lent = list[Loan]()
    for number in range(3):
        (loan,) = (await queues.take(SOURCE, RULES, [WISH], TakeCall("n1", str(number + 1)))).loans
        assert loan is not None
        lent.append(loan)
    said = [Settlement(lent[0].number, SettleHow.DEAD), Settlement(lent[1].number, SettleHow.RETRY, (), 10**9)]
    await queues.settle(SOURCE, LendingRules(ordered=True), lent[0].life, said, 1000)


async def another_name(admin: Redis, key: str) -> None:
    """One that is no text, beside those that are right."""
    match await type_of(admin, key):
        case "hash":
            await admin.hset(key, RUBBISH, RUBBISH)
        case "zset":
            await admin.zadd(key, {RUBBISH: 2.0**60})


@pytest.mark.parametrize("poison", [another_type, another_content, another_name])
@pytest.mark.parametrize("name", KEYS)
async def test_no_call_makes_a_mistake(
    redis_server: RedisProcess, name: str, poison: Callable[[Redis, str], Awaitable[None]]
) -> None:
    queues = RedisQueues(redis_server.url, clock=SystemClock(), counters=Counter(), new_life=lives())
    async with Redis.from_url(redis_server.url) as admin:
        await admin.flushall()
        await queues.start()
        mistakes = []
        for what, call in CALLS.items():
            await admin.flushall()
            await _filled(queues)
            await poison(admin, KEYS[name])
            async with asyncio.timeout(PATIENCE):
                try:
                    await call(queues)
                except StoreUnavailableError:
                    pass
                except Exception as error:  # noqa: BLE001 - this is what is looked for
                    mistakes.append(f"{what}: {error!r}")
        assert not mistakes
    await queues.close()
