"""Explanations of commands: faults of twelve kinds on two nodes, a real Redis and a real Mosquitto."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from app.core.messages import Publication
from tests.api.streaming import stream
from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

SHORT = "3s"
"""For commands that time out in any case: long enough for a PUBACK on a busy machine."""
AT_ONCE = 24
"""Faults at a time: two nodes on a busy machine read the answers of so many well before their deadlines."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker) as nodes:
        yield nodes


def say(device: Device, command: Json, topic: str, **changes: object) -> None:
    reply = {"tid": command["tid"], "bid": command["bid"], "data": {"result": 0, "output": {}}} | changes
    raw(device, topic, json.dumps(reply).encode())


def raw(device: Device, topic: str, payload: bytes) -> None:
    _puback = device._client.publish(Publication(topic, payload))


def own(command: Json) -> str:
    return f"thing/product/{command['device_id']}/services_reply"


def renamed(device: Device, command: Json, name: str) -> None:
    say(device, command, own(command), tid=name, bid=name)


def other_letter(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def elsewhere(device: Device, command: Json) -> None:
    payload = {"id": command["tid"], "status": "ok"}
    raw(device, f"homing/{command['device_id']}/response", json.dumps(payload).encode())


def later(device: Device, command: Json) -> None:
    asyncio.get_running_loop().call_later(4.5, device.answer, command)


def never(_device: Device, _command: Json) -> None:
    return


@dataclass(frozen=True)
class Fault:
    """A fault: what a device does with a command, and what is to be said of it."""

    expected: str
    reaction: Callable[[Device, Json], None] = never
    timeout: str = SHORT
    profile: str = "dji"
    heard: bool = False


FAULTS = {
    "answered": Fault("answered", Device.answer, "60s"),
    "refused": Fault(
        "device_refused", lambda device, one: say(device, one, own(one), data={"result": 319001}), timeout="60s"
    ),
    "silent": Fault("silent"),
    "silent_but_heard": Fault("silent", heard=True),
    "late": Fault("answered_late", later),
    "other_topic": Fault("answered_elsewhere", elsewhere),
    "other_device": Fault(
        "answered_elsewhere",
        lambda device, one: say(device, one, f"thing/product/{one['device_id'].lower()}/services_reply"),
    ),
    "lower_case": Fault("id_changed", lambda device, one: renamed(device, one, one["tid"].lower())),
    "cut_off": Fault("id_changed", lambda device, one: renamed(device, one, one["tid"][:-1])),
    "prefixed": Fault("id_changed", lambda device, one: renamed(device, one, "id:" + one["tid"])),
    "other_letter": Fault("id_changed", lambda device, one: renamed(device, one, other_letter(one["tid"]))),
    "no_json": Fault("undecodable", lambda device, one: raw(device, own(one), b'{"tid":')),
    "no_id": Fault("undecodable", lambda device, one: raw(device, own(one), b'{"data":{"result":0}}')),
    "contradicts": Fault("undecodable", lambda device, one: say(device, one, own(one), bid="other")),
    "nobody": Fault("no_subscriber", profile="homing"),
    "wrong_profile": Fault("wrong_profile", profile="homing", heard=True),
    "cancelled": Fault("cancelled", timeout="60s"),
}


async def explained(client: Caller, node: int, identity: str) -> Json:
    """As soon as all nodes have answered."""
    url = f"{client.cluster.nodes[node].url}/v1/commands/{identity}/explain"
    async with asyncio.timeout(PATIENCE):
        while True:
            async with client.session.get(url) as response:
                said: Json = await response.json()
                if response.status == 200 and not any("in time" in gap for gap in said["gaps"]):
                    return said
            await asyncio.sleep(0.1)


class Trial:
    """Lets faults happen, and counts what is said of them."""

    def __init__(self, cluster: Cluster, client: Caller) -> None:
        self.cluster = cluster
        self.client = client
        self.tally: Counter[str] = Counter()
        self.wrong: list[tuple[str, Json]] = []
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def count(self, kind: str, expected: str, node: int, identity: str) -> None:
        """Notes what is said at last: a device that a busy machine holds up is silent until it is heard."""
        said: Json = {}

        async def as_expected() -> bool:
            nonlocal said
            said = await explained(self.client, node, identity)
            return bool(said["verdict"]["code"] == expected)

        with suppress(TimeoutError):
            await eventually(as_expected)
        verdict = said["verdict"]["code"]
        self.tally["right" if verdict == expected else verdict] += 1
        if verdict not in (expected, "no_idea"):
            self.wrong.append((kind, said))

    async def in_turn(self, number: int) -> None:
        """A fault of a device, as soon as less than `AT_ONCE` others are under way."""
        async with self._turns:
            await self.of_a_device(number)

    async def of_a_device(self, number: int) -> None:
        kind = list(FAULTS)[number % len(FAULTS)]
        fault, device_id = FAULTS[kind], f"{kind}-{number:04}X"
        if fault.heard:
            assert (await self.client.command(number, device_id, {}, method="cover_close"))[0] == 200
        body = {"method": "cover_open", "params": {}, "timeout": fault.timeout, "profile": fault.profile}
        url = f"{self.cluster.nodes[number % 2].url}/v1/devices/{device_id}/commands"
        headers = {"Prefer": "respond-async"} if kind == "cancelled" else {}
        async with self.client.session.post(url, json=body, headers=headers) as response:
            sent = await response.json(content_type=None)
        identity = sent.get("command_id") or sent["id"]
        if kind == "cancelled":
            await self.client.session.delete(f"{self.cluster.nodes[0].url}/v1/commands/{identity}")
        if kind == "late":
            await self.until_late(identity)
        await self.count(kind, fault.expected, (number + 1) % 2, identity)

    async def until_late(self, identity: str) -> None:
        url = f"{self.cluster.nodes[0].url}/v1/commands/{identity}/events?until=retention"
        async with asyncio.timeout(PATIENCE), stream(url) as reading:
            said = await reading.all()
            assert said[-1].name == "late", said

    async def of_the_broker(self) -> None:
        """It is frozen."""
        commands = [self.client.command(0, f"silent-f{number}", {}, timeout="2s") for number in range(12)]
        with self.cluster.broker.paused():
            for _, sent in await asyncio.gather(*commands):
                await self.count("frozen", "not_acknowledged", 0, sent["command_id"])

    async def of_a_node(self) -> None:
        """It dies while its commands are open."""
        sent = [
            await self.client.command(1, f"silent-d{number}", {}, timeout="6s", prefer="respond-async")
            for number in range(12)
        ]
        # It is not repeatable, so nobody sends it again; and nobody can have noted that it was acknowledged.
        with self.cluster.broker.paused():
            _, long = await self.client.command(
                1, "silent-d12", {}, method="device_reboot", timeout="10m", prefer="respond-async"
            )
            os.kill(self.cluster.nodes[1].pid, signal.SIGKILL)
        for _, command in sent:
            await self.client.final(0, command["id"])
            await self.count("died", "node_died", 0, command["id"])

        async def told_while_it_is_open() -> bool:
            said = await explained(self.client, 0, long["id"])
            return bool(said["verdict"]["code"] == "node_died")

        await eventually(told_while_it_is_open)


async def test_of_200_faults_nearly_all_are_told_and_none_wrongly(cluster: Cluster) -> None:
    def react(device: Device, command: Json) -> None:
        if command["method"] in ("cover_open", "device_reboot"):
            FAULTS[command["device_id"].partition("-")[0]].reaction(device, command)
        else:
            device.answer(command)

    async with devices(cluster.broker, react), caller(cluster) as client:
        trial = Trial(cluster, client)
        await asyncio.gather(*(trial.in_turn(number) for number in range(176)))
        await trial.of_the_broker()
        await trial.of_a_node()
    assert trial.wrong == []
    assert sum(trial.tally.values()) == 200
    assert trial.tally["right"] >= 190, trial.tally


async def test_who_is_told_of_the_wrong_profile_is_told_the_right_one(cluster: Cluster) -> None:
    """Friction N2: `nobody is subscribed` comes with where the device was heard."""

    def react(device: Device, command: Json) -> None:
        device.answer(command)

    async with devices(cluster.broker, react), caller(cluster) as client:
        for number in range(8):  # so that both nodes have heard it
            assert (await client.command(number, "SN1", {}))[0] == 200
        url = f"{cluster.nodes[0].url}/v1/devices/SN1/commands"
        async with client.session.post(url, json={"method": "reboot", "profile": "homing"}) as response:
            refused = await response.json(content_type=None)
        said = await explained(client, 1, refused["command_id"])
    assert response.status == 409
    assert "topics of profile dji" in refused["detail"]
    assert said["verdict"]["code"] == "wrong_profile"
    assert "thing/product/SN1/services_reply" in said["verdict"]["evidence"][0]
    assert [step["what"] for step in said["timeline"]] == [
        *("registered", "published", "acknowledged", "unsent", "delivered"),
    ]
    assert said["timeline"][2]["reason"] == "nobody is subscribed (0x10)"
    assert said["gaps"] == []
