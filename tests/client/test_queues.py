"""Queues with both twins of the client, on a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from socket import gethostname

import pytest

from homing_client import ConflictError, NotFoundError
from homing_client._system import new_consumer_name
from tests.api.rig import running
from tests.api.serving import serving
from tests.client.twins import AnyHoming, Twin, all_of, close, done
from tests.waiting import eventually

BODY = {"routes": [{"database": "events", "topic": "site/+/alarm"}], "retry": ["0ms"], "max_deliveries": 2}


@pytest.fixture
async def homing(twin: Twin) -> AsyncIterator[AnyHoming]:
    async with running(events={"url": "memory://"}) as rig, serving(rig) as served:
        one = twin(f"http://127.0.0.1:{served.port}")

        async def is_open() -> bool:
            return (await rig.http.put("/v1/queues/alarms", json=BODY)).is_success

        await eventually(is_open)
        yield one
        await close(one)


async def publish(homing: AnyHoming, *values: object) -> None:
    await done(homing.events.publish, [{"topic": "site/a/alarm", "data": one} for one in values])


async def test_events_are_consumed_one_after_the_other_and_the_rest_is_given_back(homing: AnyHoming) -> None:
    await publish(homing, 1, 2, 3)
    queue = homing.queue("alarms")
    (first,) = await all_of(queue.consume, prefetch=1, most=1)
    assert (first.event["data"], first.event.topic, first.delivery) == (1, "site/a/alarm", 1)
    assert await done(first.done)
    assert not await done(first.done)
    second, third = await done(queue.take, 2)
    assert await done(second.retry, "1h")
    assert await done(third.extend, "1m")
    assert await done(third.release)
    (again,) = await done(queue.take)
    assert again.event == third.event
    assert await done(again.dead, "no such dock")
    counts = (await done(homing.queues.get, "alarms"))["counts"]
    assert (counts["done"], counts["later"], counts["lent"]) == (1, 1, 0)

    async def letters() -> list[object]:
        return await all_of(homing.queues.dead, "alarms")

    await eventually(letters)
    assert [one["reason"] for one in await all_of(homing.queues.dead, "alarms")] == ["no such dock"]
    await done(homing.queues.redrive, "alarms")
    (redriven,) = await done(queue.take, auto=True)
    assert redriven.event == third.event
    assert not await done(redriven.done)


async def test_queues_are_declared_and_deleted(homing: AnyHoming) -> None:
    with pytest.raises(ConflictError):
        await done(homing.queues.declare, "alarms", {**BODY, "loan": "1m"})
    known = await done(homing.queues.get, "alarms")
    changed = await done(homing.queues.declare, "alarms", {**BODY, "loan": "1m"}, if_match=known.tag)
    assert changed["loan"] == "1m"
    assert [one["name"] for one in await done(homing.queues.all)] == ["alarms"]
    await done(homing.queues.rewind, "alarms", to="-1h")
    await done(homing.queues.purge, "alarms")
    assert await done(homing.queues.consumers, "alarms") == []
    await done(homing.queues.delete, "alarms", only_empty=True)
    with pytest.raises(NotFoundError):
        await done(homing.queues.get, "alarms")


async def test_a_client_that_gives_no_name_has_one_of_its_own(homing: AnyHoming) -> None:
    for _ in range(2):
        assert await done(homing.queue("alarms").take, wait="0ms") == []
    (one,) = await done(homing.queues.consumers, "alarms")
    assert one["consumer"].startswith(f"{gethostname()[:40]}-")
    names = {new_consumer_name() for _ in range(20)}
    assert len(names) > 1
    assert max(map(len, names)) <= 64
