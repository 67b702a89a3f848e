"""A lamp behind zigbee2mqtt whose name has blanks and a slash, and two nodes that call it by that name."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import resources
from typing import Any

import pytest

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_client import AsyncHoming, Happening, HomingError, NotFoundError
from homing_rig import services
from homing_rig.directory import add_service, opened
from homing_rig.receivers import receiving
from tests.cluster.harness import Cluster, caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.cluster.test_webhooks import SETTINGS as WEBHOOKS
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

NAME = "living room/lamp 1"
ID = "living%20room%2Flamp%201"
ELSEWHERE = "kitchen/lamp 1"
EVENT = """
[[event]]
name = "state"
topic = "zigbee2mqtt/{device_id* but bridge, set, get, availability}"
"""
"""For the family's file, so that the log keeps what lamps say."""


class Lamp:
    """Tells its state after each command, as zigbee2mqtt does, and so does one that is called like the id."""

    def __init__(self, client: PahoMqttClient, name: str) -> None:
        self._client = client
        self._name = name
        self.heard: list[dict[str, object]] = []

    def hear(self, delivery: InboundDelivery) -> None:
        wanted = json.loads(delivery.message.payload)
        delivery.acknowledge()
        self.heard.append(wanted)
        for name, extra in ((ID, "stranger"), (f"{self._name}/left", "stranger"), (self._name, "lamp")):
            self.say(name, {**wanted, "said_by": extra})

    def say(self, name: str, state: dict[str, object]) -> None:
        _ = self._client.publish(Publication(f"zigbee2mqtt/{name}", json.dumps(state).encode()))

    def available(self, state: str) -> None:
        self.say(f"{self._name}/availability", {"state": state})


@asynccontextmanager
async def lamp_on(broker: services.MosquittoProcess, name: str = NAME) -> AsyncIterator[Lamp]:
    client_id = "kitchen" if name == ELSEWHERE else "living room"
    client = PahoMqttClient(MqttOptions.from_url(broker.url, client_id=client_id), Counter())
    lamp = Lamp(client, name)
    await client.start([Subscription(f"zigbee2mqtt/{name}/set")], lamp.hear)
    await client.wait_connected()
    try:
        yield lamp
    finally:
        await client.stop()


async def test_a_lamp_in_a_room_is_one_device_for_all_who_call_it() -> None:
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILES_SHIPPED="zigbee2mqtt", HOMING_PROFILE="zigbee2mqtt") as cluster,
    ):
        async with lamp_on(broker) as lamp, caller(cluster) as client:
            ids = []
            for number in range(10):
                status, sent = await client.command(
                    number, ID, {"state": "ON", "brightness": number}, method="set", timeout="30s"
                )
                assert (status, sent["state"], sent["device_id"]) == (200, "succeeded", ID), sent
                assert sent["result"] == {"state": "ON", "brightness": number, "said_by": "lamp"}
                ids.append(sent["id"])
            assert len(lamp.heard) == 10
            url = cluster.nodes[1].url
            async with AsyncHoming(url) as homing:
                for name in (NAME, ID):
                    said = await homing.send(name, "set", {"state": "OFF"}, timeout="30s")
                    assert (said.state, said.device_id) == ("succeeded", ID)
                    ids.append(said.id)
                    for of_device in (homing.commands(device=name), homing.commands_of(name)):
                        assert [one.id async for one in of_device] == ids[::-1]
            command = [sys.executable, "-m", "app.cli", "send", NAME, "set", "state=ON", "--url", url]
            told = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            told_text, wrong = await told.communicate()
            assert (told.returncode, ID in told_text.decode()) == (0, True), wrong


async def key_for(cluster: Cluster, database: str, role: str, devices: str) -> str:
    """The key of a service with this role on these devices, which counts on all nodes."""
    async with opened(database) as directory:
        key = await add_service(directory, role, role, devices)
    for node in cluster.nodes:
        async with AsyncHoming(node.url, key=key.text) as homing:

            async def counts(homing: AsyncHoming = homing) -> bool:
                try:
                    return (await homing.me()).principal == role
                except HomingError:
                    return False

            await eventually(counts)
    return key.text


@dataclass(frozen=True)
class House:
    """Two nodes, the keys of who may do everything and of who may use the living room."""

    cluster: Cluster
    admin: str
    guest: str

    def caller(self, node: int, key: str) -> AsyncHoming:
        return AsyncHoming(self.cluster.nodes[node].url, key=key)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    (folder / "profiles").mkdir()
    family = resources.files("app.profiles.shipped").joinpath("zigbee2mqtt.toml").read_text("utf-8")
    (folder / "profiles" / "zigbee2mqtt.toml").write_text(family + EVENT)
    database = f"sqlite:///{folder / 'access.db'}"
    env = {"HOMING_PROFILES_DIR": str(folder / "profiles"), "HOMING_PROFILE": "zigbee2mqtt", **WEBHOOKS}
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(
            2,
            server,
            broker,
            HOMING_PROFILES_SHIPPED="homing",
            HOMING_ACCESS_URL=database,
            HOMING_EVENTS_URL=server.node_url,
            **env,
        ) as cluster,
    ):
        admin = asyncio.run(key_for(cluster, database, "admin", "*"))
        guest = asyncio.run(key_for(cluster, database, "operator", "living%20room*"))
        yield House(cluster, admin, guest)


async def switch(homing: AsyncHoming, name: str, state: str = "ON") -> str:
    """The id of a command that a lamp has done."""
    done = await homing.call(name, "set", {"state": state}, timeout=timedelta(seconds=30))
    return done.id


async def test_rules_for_a_room_are_for_its_lamps(house: House) -> None:
    async with lamp_on(house.cluster.broker), lamp_on(house.cluster.broker, ELSEWHERE) as other:
        for node in range(2):
            async with house.caller(node, house.guest) as guest:
                for name in (NAME, ID):
                    await switch(guest, name)
                with pytest.raises(NotFoundError):
                    await switch(guest, ELSEWHERE)
        assert other.heard == []
        async with house.caller(0, house.admin) as admin:
            await switch(admin, ELSEWHERE)


@asynccontextmanager
async def outcomes(homing: AsyncHoming, device: str | None) -> AsyncIterator[AsyncIterator[Happening]]:
    """Yield the outcomes of commands, as a stream tells them that has begun."""
    stream = homing.watch_all(device=device)
    async with aclosing(stream):  # type: ignore[type-var] # it is a generator
        assert (await anext(stream)).kind == "bookmark"
        yield stream


async def first_outcome(stream: AsyncIterator[Happening]) -> Happening:
    async with asyncio.timeout(PATIENCE):
        return await anext(one async for one in stream if one.kind == "outcome")


async def test_streams_of_a_lamp_have_that_lamp_alone(house: House) -> None:
    async with (
        lamp_on(house.cluster.broker),
        lamp_on(house.cluster.broker, ELSEWHERE),
        house.caller(0, house.admin) as admin,
        house.caller(1, house.guest) as guest,
        outcomes(admin, NAME) as of_the_name,
        outcomes(guest, ID) as of_the_id,
        outcomes(admin, "living room/*") as of_the_room,
        outcomes(guest, None) as readable,
    ):
        await switch(admin, ELSEWHERE)
        await switch(admin, NAME)
        for told in (of_the_name, of_the_id, of_the_room, readable):
            assert (await first_outcome(told)).device_id == ID


async def test_webhooks_for_a_room_are_told_of_its_lamps(house: House) -> None:
    async with (
        lamp_on(house.cluster.broker),
        lamp_on(house.cluster.broker, ELSEWHERE),
        receiving() as receiver,
        house.caller(0, house.admin) as admin,
        house.caller(1, house.admin) as beside,
    ):
        made = await admin.webhooks.make(receiver.url, events=["command.succeeded"], devices="living room/*")
        assert made["devices"] == "living%20room%2F*"

        async def round_of_both() -> set[str]:
            """The ids of the commands to the living room; those to the kitchen go before them."""
            sent = [await switch(one, name) for name in (ELSEWHERE, NAME) for one in (admin, beside)]
            return set(sent[2:])

        def told() -> list[dict[str, Any]]:
            return [json.loads(body)["data"]["command"] for _, body in receiver.got]

        async def known() -> bool:
            """To the nodes, which takes them a while."""
            await round_of_both()
            return told() != []

        await eventually(known)
        last = await round_of_both()
        await eventually(lambda: last <= {one["id"] for one in told()})
        assert {one["device_id"] for one in told()} == {ID}


async def test_what_is_known_of_a_lamp_is_known_by_either_name(house: House) -> None:
    async with (
        lamp_on(house.cluster.broker) as lamp,
        lamp_on(house.cluster.broker, ELSEWHERE),
        house.caller(0, house.guest) as one,
        house.caller(1, house.guest) as another,
        house.caller(1, house.admin) as admin,
    ):
        for name in (ELSEWHERE, NAME):
            await switch(admin, name, "OFF")

        async def shown(*, online: bool | None) -> bool:
            known = [await guest.events.of_device(name) for guest in (one, another) for name in (NAME, ID)]
            assert {state["device_id"] for state in known} == {ID}
            values = [[(value["topic"], value["data"]) for value in state["values"]] for state in known]
            said = [(f"zigbee2mqtt/{NAME}", {"state": "OFF", "said_by": "lamp"})]
            return values == [said] * 4 and [state["presence"]["online"] for state in known] == [online] * 4

        await eventually(lambda: shown(online=None))
        for state, online in (("online", True), ("offline", False)):
            lamp.available(state)
            await eventually(partial(shown, online=online))
        of_the_kitchen = [(await caller.events.of_device(ELSEWHERE))["values"] for caller in (admin, another)]
        assert [len(values) for values in of_the_kitchen] == [1, 0]
