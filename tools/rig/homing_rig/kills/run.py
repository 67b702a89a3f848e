"""A run of kills: publishers, durable subscribers, members of a share, retained numbers and wills."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from homing_rig.harness import NodeProcess
from homing_rig.kills.clients import LastingClient
from homing_rig.patience import eventually
from homing_rig.ports import lasting_port

PUBLISHERS: Final = 4
ALONE: Final = 2
MEMBERS: Final = 2
MORTALS: Final = 3
RETAINED: Final = 5
LEAST_SECONDS: Final = 0.3
MOST_SECONDS: Final = 2.0
"""The time for which a node lives between two kills."""
TICK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class OwnBroker:
    """The address of a node's broker."""

    port: int

    @property
    def node_settings(self) -> Mapping[str, str]:
        """The settings of the node that has it."""
        url = f"mqtt://127.0.0.1:{self.port}"
        return {"HOMING_BROKER_URL": url, "HOMING_MQTT_URL": url}


@dataclass
class KillsResult:
    """`wrong` has a sentence for each thing that must not be."""

    kills: int = 0
    said: Counter[int] = field(default_factory=Counter)
    """The number of messages that were said, by QoS."""
    promised: int = 0
    delivered: int = 0
    again: int = 0
    """Deliveries of QoS 1 beyond the first one, which may be."""
    wills: int = 0
    wrong: list[str] = field(default_factory=list)


class KillsRun:
    """The clients of one run."""

    def __init__(self, port: int, seed: int) -> None:
        self.result = KillsResult()
        self.port = port
        self.writers = [LastingClient(f"writer-{number}", port) for number in range(PUBLISHERS)]
        self.alone = [LastingClient(f"alone-{number}", port, ("kills/#",)) for number in range(ALONE)]
        self.members = [LastingClient(f"member-{number}", port, ("$share/g/kills/#",)) for number in range(MEMBERS)]
        self.keeper = LastingClient("keeper", port)
        self.mortals = [LastingClient(f"mortal-{number}", port, (), f"wills/{number}") for number in range(MORTALS)]
        self.heir = LastingClient("heir", port, ("wills/#",))
        self.all = [*self.alone, *self.members, self.heir, self.keeper, *self.writers, *self.mortals]
        self._random = Random(seed)
        self._talking = True
        self._kept: Counter[str] = Counter()

    async def run(self, node: NodeProcess, kills: int, rate: float) -> None:
        """Kill the node so many times while all speak, then compare."""
        async with asyncio.TaskGroup() as tasks:
            for client in self.all:
                tasks.create_task(client.run())
            for client in self.all:
                await eventually(client.ready.is_set)
            talking = [tasks.create_task(self._talk(number, rate / PUBLISHERS)) for number in range(PUBLISHERS)]
            talking.append(tasks.create_task(self._retain()))
            for _ in range(kills):
                await asyncio.sleep(self._random.uniform(LEAST_SECONDS, MOST_SECONDS))
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                self.result.kills += 1
                await self._look_at_retained()
            self._talking = False
            await asyncio.wait(talking)
            await self._settle()
            await self._look_at_retained()
            for client in self.all:
                client.leave()
        self._judge()

    async def _talk(self, number: int, rate: float) -> None:
        writer, counts = self.writers[number], [0, 0, 0]
        while self._talking:
            for _ in range(max(1, round(rate * TICK_SECONDS))):
                qos = self._random.choice((0, 1, 2))
                await writer.publish(f"kills/{number}/{qos}", counts[qos], qos)
                counts[qos] += 1
                self.result.said[qos] += 1
            await asyncio.sleep(TICK_SECONDS)

    async def _retain(self) -> None:
        while self._talking:
            topic = f"kept/{self._random.randrange(RETAINED)}"
            self._kept[topic] += 1
            await self.keeper.publish(topic, self._kept[topic], 1, retain=True)
            await asyncio.sleep(TICK_SECONDS)

    async def _look_at_retained(self) -> None:
        """Look whether a client that subscribes now gets what was promised before, or something later."""
        await eventually(self.keeper.ready.is_set)
        least = {topic: max(numbers) for topic, numbers in self.keeper.promised.items() if numbers}
        reader = LastingClient(f"reader-{self.result.kills}-{self._random.random()}", self.port, ("kept/#",))
        reading = asyncio.create_task(reader.run())
        await eventually(lambda: reader.got.keys() >= least.keys())
        for topic, number in least.items():
            if max(reader.got[topic]) < number:
                self.result.wrong.append(f"{topic}: {max(reader.got[topic])} is retained, {number} was promised")
        reader.leave()
        await reading

    async def _settle(self) -> None:
        await eventually(lambda: not any(one.under_way for one in (*self.writers, self.keeper)))
        with suppress(TimeoutError):  # it is judged then
            await eventually(lambda: not self._missing())
        await asyncio.sleep(1)  # for what comes twice

    def _shared(self) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {}
        for member in self.members:
            for topic, numbers in member.got.items():
                found.setdefault(topic, Counter()).update(numbers)
        return found

    def _receivers(self) -> list[tuple[str, Mapping[str, Counter[int]]]]:
        return [*((one.client_id, one.got) for one in self.alone), ("the share", self._shared())]

    def _missing(self) -> int:
        return sum(len(numbers - got.get(topic, Counter()).keys()) for _, got, topic, numbers in self._pairs())

    def _pairs(self) -> Sequence[tuple[str, Mapping[str, Counter[int]], str, set[int]]]:
        return [
            (name, got, topic, numbers)
            for name, got in self._receivers()
            for writer in self.writers
            for topic, numbers in writer.promised.items()
        ]

    def _judge(self) -> None:
        result = self.result
        result.promised = sum(len(one) for writer in self.writers for one in writer.promised.values())
        for name, got, topic, numbers in self._pairs():
            came = got.get(topic, Counter())
            if lost := numbers - came.keys():
                result.wrong.append(f"{name}: {len(lost)} messages of {topic} are lost, as {min(lost)}")
            twice = [one for one, times in came.items() if times > 1]
            if topic.endswith("/2") and twice:
                result.wrong.append(f"{name}: {len(twice)} messages of {topic} came again, as {twice[0]}")
            result.delivered += sum(came.values())
            result.again += sum(came.values()) - len(came)
        self._judge_wills()
        result.wrong += [fault for client in self.all for fault in client.faults]

    def _judge_wills(self) -> None:
        for number, mortal in enumerate(self.mortals):
            came = self.heir.got[f"wills/{number}"]
            due = set(mortal.accepted[:-1])
            if missing := due - came.keys():
                self.result.wrong.append(f"{mortal.client_id}: {len(missing)} wills are lost, as {min(missing)}")
            wrong = [one for one, times in came.items() if times > 1 or one == mortal.accepted[-1]]
            if wrong:
                self.result.wrong.append(f"{mortal.client_id}: wills came again or without reason: {wrong}")
            self.result.wills += len(came)


async def run_kills(kills: int, rate: float, seed: int) -> KillsResult:
    """Start a node on a folder of its own, and let it be killed."""
    with tempfile.TemporaryDirectory(prefix="homing-kills-") as folder:
        broker = OwnBroker(lasting_port())
        settings = {"HOMING_STORE_URL": f"rocks://{Path(folder) / 'data'}"}
        with NodeProcess("", None, broker, **settings) as node:
            run = KillsRun(broker.port, seed)
            await run.run(node, kills, rate)
    return run.result
