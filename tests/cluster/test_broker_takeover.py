"""Two nodes with one Redis are one broker: the second goes on where the first ended, with all it had acknowledged."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import pytest

from homing_rig.ports import lasting_port
from tests.cluster.harness import NodeProcess
from tests.cluster.test_kept_sessions import durable
from tests.cluster.test_own_broker import OwnBroker
from tests.services import RedisProcess
from tests.waiting import eventually

MESSAGES = 60


@pytest.mark.parametrize("leave", [NodeProcess.kill, NodeProcess.pause])
async def test_a_second_node_goes_on_with_the_sessions_of_the_first(
    redis_server: RedisProcess, leave: Callable[[NodeProcess], object]
) -> None:
    redis_server.forget_everything()
    ports = [lasting_port() for _ in range(2)]
    first, second = (
        NodeProcess(f"n{number}", redis_server, OwnBroker(port), HOMING_CLUSTER_LEASE="1s")
        for number, port in enumerate(ports)
    )
    try:
        await asyncio.to_thread(first.start)
        starting = asyncio.create_task(asyncio.to_thread(second.start))
        async with durable(ports[0], "away") as away:
            await away.subscribe("t/#")
        async with durable(ports[0], "talker") as talker:
            for number in range(MESSAGES):
                talker.client.publish(f"t/{number}", b"%d" % number, 1 + number % 2, retain=number == MESSAGES - 1)
            await eventually(lambda: len(talker.acknowledged) == MESSAGES)
        await eventually(lambda: "broker_stands_by" in second.log_text)
        assert not starting.done()
        await asyncio.to_thread(leave, first)
        await starting
        async with durable(ports[1], "away") as away:
            await eventually(lambda: len(away.got) == MESSAGES)
            assert {payload for payload, _ in away.got} == {b"%d" % number for number in range(MESSAGES)}
            assert {times for (_, qos), times in away.got.items() if qos == 2} == {1}
        async with durable(ports[1], "new") as new:
            await new.subscribe("t/#")
            await eventually(lambda: new.got[b"%d" % (MESSAGES - 1), 2] == 1)
        if leave is NodeProcess.pause:
            await asyncio.to_thread(first.resume)
            await eventually(lambda: "node_failed" in first.log_text)
    finally:
        for node in (first, second):
            await asyncio.to_thread(node.kill)
            shutil.rmtree(node.folder, ignore_errors=True)
