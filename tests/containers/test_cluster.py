"""Three nodes of our own image on a Docker network: they answer, and a partition costs no answer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from app.mqtt.base import Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import Device
from tests.containers.engine import PASSWORD, NodeContainer, Services, until_status
from tests.waiting import eventually


@pytest.fixture(scope="module")
def nodes(services: Services) -> Iterator[list[NodeContainer]]:
    with ExitStack() as stack:
        started = [stack.enter_context(services.node(f"n{number}")) for number in (1, 2, 3)]
        for node in started:
            until_status(f"{node.url}/readyz", 200)
        yield started


def adopted(survivors: list[NodeContainer]) -> bool:
    """True if one of them has taken over the session of a dead node."""
    said = [json.loads(until_status(f"{node.url}/v1/nodes", 200))["self"]["counters"] for node in survivors]
    return any(counters.get("adoption.sessions") for counters in said)


@asynccontextmanager
async def devices(services: Services) -> AsyncIterator[Device]:
    """A fleet that answers any serial number with what it was sent."""
    options = replace(MqttOptions.from_url(services.mqtt_url, client_id="fleet"), username="fleet", password=PASSWORD)
    client = PahoMqttClient(options, counters=Counter())
    device = Device(client, lambda fleet, command: fleet.answer(command))
    await client.start([Subscription("thing/product/+/services")], device.handle)
    await client.wait_connected()
    try:
        yield device
    finally:
        await client.stop()


class Load:
    """Commands to all nodes in turn, and what came back."""

    def __init__(self, session: aiohttp.ClientSession, nodes: list[NodeContainer]) -> None:
        self._session = session
        self._urls = [node.url for node in nodes]
        self.answers: list[tuple[int, int, int, dict[str, Any]]] = []
        """Node, number, status and body of each."""

    async def send(self, number: int) -> None:
        node = number % len(self._urls)
        url = f"{self._urls[node]}/v1/devices/SN{number % 20:04}/commands"
        body = {"method": "cover_open", "params": {"nonce": number}, "timeout": "30s"}
        async with self._session.post(url, json=body) as response:
            self.answers.append((node, number, response.status, await response.json(content_type=None)))

    async def read(self, command_id: str) -> dict[str, Any]:
        """A command as every node shows it."""
        seen = []
        for url in self._urls:
            async with self._session.get(f"{url}/v1/commands/{command_id}") as response:
                seen.append(await response.json(content_type=None))
        assert seen[0] == seen[1] == seen[2]
        command: dict[str, Any] = seen[0]
        return command

    def assert_right(self) -> None:
        """Assert that everybody who got an outcome got his own."""
        for _node, number, status, body in self.answers:
            if status == 200:
                assert (body["state"], body["result"]) == ("succeeded", {"nonce": number})


async def test_three_nodes_answer_all_commands_whichever_node_the_response_came_to(
    services: Services, nodes: list[NodeContainer]
) -> None:
    numbers = iter(range(300))

    async def caller(load: Load) -> None:
        for number in numbers:
            await load.send(number)

    async with devices(services) as device, aiohttp.ClientSession() as session:
        load = Load(session, nodes)
        await asyncio.gather(*(caller(load) for _ in range(20)))

    assert Counter(status for _, _, status, _ in load.answers) == {200: 300}
    load.assert_right()
    assert {body["home_node"] for *_, body in load.answers} == {"n1", "n2", "n3"}
    assert sum(body["forwarded"] for *_, body in load.answers) > 30, "responses land on other nodes, too"
    assert set(device.executed.values()) == {1}


async def test_F33_a_node_without_store_and_broker_says_so_and_no_answer_is_lost_or_wrong_when_it_is_back(
    services: Services, nodes: list[NodeContainer]
) -> None:
    cut = nodes[2]
    stop = asyncio.Event()
    numbers = iter(range(1000, 100_000))

    async def caller(load: Load) -> None:
        for number in numbers:
            await load.send(number)
            await asyncio.sleep(0.05)
            if stop.is_set():
                return

    async with devices(services) as device, aiohttp.ClientSession() as session:
        load = Load(session, nodes)
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(caller(load))
            await asyncio.sleep(1)
            services.cut_off(cut)
            said = await asyncio.to_thread(until_status, f"{cut.url}/readyz", 503)
            assert "store: " in said
            # Its lease runs out: the others take its session over, and it has to come back as somebody else.
            await eventually(lambda: asyncio.to_thread(adopted, nodes[:2]))
            await eventually(lambda: any(node == 2 and status == 503 for node, _, status, _ in load.answers))
            services.connect(cut)
            await asyncio.to_thread(until_status, f"{cut.url}/readyz", 200)
            await asyncio.sleep(1)
            stop.set()

        by_status = Counter((node == 2, status) for node, _, status, _ in load.answers)
        assert {status for is_cut, status in by_status if not is_cut} == {200}, by_status
        assert {status for is_cut, status in by_status if is_cut} <= {200, 202, 503, 504}, by_status
        assert by_status[True, 503], "the node that was cut off took commands"
        load.assert_right()
        # Every command is the same on every node; one that is not on record never left its node.
        for _node, number, status, body in load.answers:
            command_id = body.get("id") or body.get("command_id")
            if command_id is None or status == 200:
                continue
            seen = await load.read(command_id)
            if seen.get("status") == 404:
                assert (status, device.executed[command_id]) == (503, 0)
            if seen.get("state") == "succeeded":
                assert seen["result"] == {"nonce": number}
        assert set(device.executed.values()) <= {0, 1}, "a command was sent twice"
