"""A program that consumes queues by callbacks, with both twins of the client, on real nodes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from homing_client import NotFoundError
from homing_client._topics import fits
from tests.api.rig import Rig, running
from tests.api.serving import serving
from tests.client.twins import AnyHoming, Twin, close, done
from tests.waiting import eventually

BODY = {"routes": [{"database": "events", "topic": "site/#"}], "retry": ["0ms"], "max_deliveries": 3}
Nodes = Callable[[], Awaitable[tuple[Rig, AnyHoming]]]


@pytest.fixture
async def nodes(twin: Twin) -> AsyncIterator[Nodes]:
    """Starts nodes, each a cluster of its own with the queues `alarms` and `other`."""
    async with AsyncExitStack() as stack:

        async def start() -> tuple[Rig, AnyHoming]:
            rig = await stack.enter_async_context(running(events={"url": "memory://"}))
            served = await stack.enter_async_context(serving(rig))
            homing = twin(f"http://127.0.0.1:{served.port}")
            stack.push_async_callback(close, homing)

            async def is_open() -> bool:
                return (await rig.http.put("/v1/queues/alarms", json=BODY)).is_success

            await eventually(is_open)
            return rig, homing

        yield start


class Callbacks:
    """The calls that were made, by the names of the callbacks; each works with both twins."""

    def __init__(self, homing: AnyHoming) -> None:
        self.heard: list[tuple[str, Any]] = []
        self._waits = type(homing).__name__.startswith("Async")

    def named(self, name: str, fails: int = 0) -> Callable[[Any], Any]:
        """A callback that fails so many times."""
        left = [fails]

        def hear(message: Any) -> None:  # noqa: ANN401 - a message of either twin
            self.heard.append((name, message.event["data"]))
            if left[0]:
                left[0] -= 1
                raise ValueError("not today")

        async def hear_async(message: Any) -> None:  # noqa: ANN401 - likewise
            hear(message)

        return hear_async if self._waits else hear


async def say(rig: Rig, topic: str, *values: object) -> None:
    found = await rig.http.post("/v1/events", json=[{"topic": topic, "data": one} for one in values])
    assert found.is_success, found.text


async def counts(rig: Rig) -> dict[str, int]:
    told: dict[str, int] = (await rig.http.get("/v1/queues/alarms")).json()["counts"]
    return told


async def test_each_topic_has_its_callback_and_the_first_one_is_called(nodes: Nodes) -> None:
    rig, homing = await nodes()
    callbacks, consumer = Callbacks(homing), homing.consumer(parallel=2, consumer="c")
    consumer.on("alarms", topic="site/+/fire")(callbacks.named("fire"))
    consumer.on("alarms", topic="site/#")(callbacks.named("rest"))
    running_ = asyncio.create_task(done(consumer.run))
    await say(rig, "site/a/fire", 1)
    await say(rig, "site/a/smoke", 2, 3)

    async def all_done() -> bool:
        return (await counts(rig))["done"] == 3

    await eventually(all_done)
    consumer.stop()
    await running_
    assert sorted(callbacks.heard) == [("fire", 1), ("rest", 2), ("rest", 3)]
    await say(rig, "site/a/fire", 4)
    assert (await counts(rig))["done"] == 3


async def test_a_callback_that_fails_is_called_again_and_it_is_logged(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    rig, homing = await nodes()
    callbacks, consumer = Callbacks(homing), homing.consumer()
    consumer.on("alarms")(callbacks.named("all", fails=1))
    with caplog.at_level(logging.ERROR, "homing_client"):
        running_ = asyncio.create_task(done(consumer.run))
        await say(rig, "site/a/fire", 1)

        async def is_done() -> bool:
            return (await counts(rig))["done"] == 1

        await eventually(is_done)
        consumer.stop()
        await running_
    assert callbacks.heard == [("all", 1)] * 2
    assert "queue alarms: an event of site/a/fire failed" in caplog.text
    assert "not today" in caplog.text


async def test_what_no_callback_is_for_is_left_to_others_and_put_aside_in_the_end(nodes: Nodes) -> None:
    rig, homing = await nodes()
    callbacks, consumer = Callbacks(homing), homing.consumer()
    consumer.on("alarms", topic="site/+/fire")(callbacks.named("fire"))
    running_ = asyncio.create_task(done(consumer.run))
    await say(rig, "site/a/smoke", 1)

    async def is_dead() -> bool:
        return (await counts(rig))["dead"] == 1

    await eventually(is_dead)
    consumer.stop()
    await running_
    assert callbacks.heard == []


async def test_several_clusters_are_consumed_and_one_that_is_away_holds_up_no_other(nodes: Nodes, twin: Twin) -> None:
    (rig, homing), (other_rig, other) = await nodes(), await nodes()
    away = twin("http://127.0.0.1:9")
    callbacks, consumer = Callbacks(homing), homing.consumer(also=[other, away])  # type: ignore[list-item] # of one twin
    consumer.on("alarms")(callbacks.named("all"))
    running_ = asyncio.create_task(done(consumer.run))
    await say(rig, "site/a/fire", "here")
    await say(other_rig, "site/a/fire", "there")

    async def both_done() -> bool:
        return [(await counts(one))["done"] for one in (rig, other_rig)] == [1, 1]

    await eventually(both_done)
    consumer.stop()
    await running_
    await close(away)
    assert sorted(callbacks.heard) == [("all", "here"), ("all", "there")]


async def test_a_queue_that_is_not_there_ends_all_and_is_told(nodes: Nodes) -> None:
    _, homing = await nodes()
    callbacks, consumer = Callbacks(homing), homing.consumer()
    consumer.on("alarms")(callbacks.named("all"))
    consumer.on("nobody")(callbacks.named("none"))
    with pytest.raises(NotFoundError):
        await done(consumer.run)
    assert threading.active_count() < 50


@pytest.mark.parametrize(
    ("topic_filter", "topic", "is_one"),
    [
        ("#", "a", True),
        ("#", "$a", False),
        ("+/b", "$a/b", False),
        ("$a/#", "$a/b", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/b/d", False),
        ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_fit_as_mqtt_says(topic_filter: str, topic: str, is_one: bool) -> None:  # noqa: FBT001 - a column
    assert fits(topic_filter, topic) == is_one


async def test_nodes_push_over_one_connection_and_are_asked_where_they_offer_none(twin: Twin) -> None:
    for most in (10, 1):
        async with AsyncExitStack() as stack:
            rig = await stack.enter_async_context(running(events={"url": "memory://"}, api={"max_streams": most}))
            served = await stack.enter_async_context(serving(rig))
            if most == 1:
                rig.application.streams.admit(None)  # no place is left
            homing = twin(f"http://127.0.0.1:{served.port}")
            stack.push_async_callback(close, homing)

            async def is_open(rig: Rig = rig) -> bool:
                return (await rig.http.put("/v1/queues/alarms", json=BODY)).is_success

            await eventually(is_open)
            callbacks, consumer = Callbacks(homing), homing.consumer(parallel=4, consumer="c")
            consumer.on("alarms")(callbacks.named("all"))
            running_ = asyncio.create_task(done(consumer.run))
            await say(rig, "site/a/fire", *range(20))

            async def all_done(rig: Rig = rig) -> bool:
                return (await counts(rig))["done"] == 20

            await eventually(all_done)
            assert rig.counters["websocket.opened"] == (most > 1)
            consumer.stop()
            await running_
        assert sorted(one for _, one in callbacks.heard) == list(range(20))


async def test_a_connection_that_breaks_is_made_again_and_what_it_had_is_handled(nodes: Nodes) -> None:
    rig, homing = await nodes()
    callbacks, consumer = Callbacks(homing), homing.consumer()
    consumer.on("alarms")(callbacks.named("all"))
    running_ = asyncio.create_task(done(consumer.run))

    async def is_connected(times: int) -> bool:
        return rig.counters["websocket.opened"] == times and len(rig.application.streams) == 1

    await eventually(lambda: is_connected(1))
    rig.application.connections.dismiss()
    await eventually(lambda: is_connected(2))
    await say(rig, "site/a/fire", 1)

    async def is_done() -> bool:
        return (await counts(rig))["done"] == 1

    await eventually(is_done)
    consumer.stop()
    await running_
    assert callbacks.heard == [("all", 1)]
