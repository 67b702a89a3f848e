"""A bridge of Mosquitto, and its client that asks and waits, speak with the broker of a node."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import running_broker
from tests.services import IN_CONTAINERS, MosquittoProcess, find_binary
from tests.waiting import PATIENCE, eventually

BRIDGE = """
connection box
address 127.0.0.1:{port}
bridge_protocol_version {version}
try_private {private}
restart_timeout 1
notifications false
topic up/# out 1
topic down/# in 1
"""


async def run(command: str, port: int, *words: str) -> str:
    """Run a client of Mosquitto to its end, and return the text that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(find_binary(command, "mosquitto-clients"), "-h", "127.0.0.1", "-p", str(port), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    return said.decode().strip()


async def carried(topic: str, here: int, there: int) -> str:
    """Say the same at one broker until a client at the other one hears it, and return that."""
    listener = asyncio.create_task(run("mosquitto_sub", there, "-t", topic, "-C", "1"))
    while not listener.done():
        await run("mosquitto_pub", here, "-t", topic, "-m", "hello", "-q", "1")
    return await listener


@pytest.mark.parametrize(("version", "private"), [("mqttv311", True), ("mqttv311", False), ("mqttv50", False)])
async def test_a_bridge_of_mosquitto_carries_messages_both_ways(version: str, *, private: bool) -> None:
    """One that may tries a version of its own first, and comes again with the one of the standard."""
    if "mosquitto" in IN_CONTAINERS:
        pytest.skip("Mosquitto is in a container, which cannot reach this broker")
    find_binary("mosquitto")
    async with running_broker() as own:
        lines = BRIDGE.format(port=own.port, version=version, private=str(private).lower())
        with MosquittoProcess(*lines.split("\n")) as mosquitto:
            assert await carried("up/said", mosquitto.port, own.port) == "hello"
            assert await carried("down/said", own.port, mosquitto.port) == "hello"
        assert own.counters["broker.refused.unsupported_protocol_version"] == private


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_mosquitto_rr_gets_its_answer(version: str) -> None:
    async with running_broker() as own:
        words = ("-V", version, "-t", "ask", "-e", "answer", "-m", "how many", "-q", "1")
        question = asyncio.create_task(run("mosquitto_sub", own.port, "-t", "ask", "-C", "1", "-q", "1"))
        await eventually(lambda: len(own.broker.subscriptions))
        asking = asyncio.create_task(run("mosquitto_rr", own.port, *words))
        assert await question == "how many"
        await run("mosquitto_pub", own.port, "-t", "answer", "-m", "three", "-q", "1")
        assert await asking == "three"
