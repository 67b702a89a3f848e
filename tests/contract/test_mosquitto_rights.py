"""deploy/mosquitto/acl grants what nodes and devices use and nothing else (S9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest

from app.core.cluster.notices import NOTICES
from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.core.profiles.event_reader import EventReader
from app.core.topics import canary_topics, matches, share
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_probe import Needs, probe
from app.profiles.loader import load_profiles
from app.runtime.system import SystemClock
from tests.services import DEPLOY, NODE_PASSWORD, NODE_USER, MosquittoProcess
from tests.waiting import PATIENCE

DEVICE = "SN0001"
"""Has a password in deploy/mosquitto/passwords.example, as the nodes have."""
RULES = [
    line
    for line in (DEPLOY / "mosquitto" / "acl").read_text().splitlines()
    if line.startswith(("topic ", "pattern ")) and "doctor" not in line and "$SYS" not in line
]
PROFILES = list(load_profiles().values())
REQUESTS = [topic for one in PROFILES for topic in one.told]
WRITTEN = [topic.render(device_id=DEVICE, method="m", id="i") for topic in REQUESTS]
READ = sorted({topic.filter() for one in PROFILES for topic in one.heard})
SAID = [one for one in sorted(EventReader(PROFILES).filters()) if one not in READ]
"""Topics of events and presence that are no topics of answers."""
ANSWERED = [one.replace("+", DEVICE) for one in [*READ, *SAID]]
CANARIES = canary_topics(READ)
NOTICE = f"{NOTICES}/x"
OWN = [*CANARIES, NOTICE]
"""The topics that nodes write for nodes."""

numbers = count()


class Party:
    """A client that logs in, and what it was given."""

    def __init__(self, broker: MosquittoProcess, user: str) -> None:
        options = MqttOptions.from_url(broker.url, client_id=f"{user}-{next(numbers)}")
        self.client = PahoMqttClient(replace(options, username=user, password=NODE_PASSWORD), Counter())
        self.heard: set[str] = set()
        self.sentinel = asyncio.Event()

    def take(self, delivery: InboundDelivery) -> None:
        self.heard.add(delivery.message.topic)
        delivery.acknowledge()

    async def may_write(self, topic: str) -> bool:
        try:
            await self.client.publish(Publication(topic, b"{}"))
        except BrokerUnavailableError:
            return False
        return True

    async def hears_no_more(self) -> None:
        """Assert that it has all that the broker had for it before this round trip: one connection keeps the order."""
        await self.may_write("nobody/may/write/this")


@asynccontextmanager
async def parties(broker: MosquittoProcess, *subscriptions: tuple[str, Sequence[str]]) -> AsyncIterator[list[Party]]:
    async with AsyncExitStack() as stack:
        found = []
        for user, filters in subscriptions:
            party = Party(broker, user)
            await party.client.start([Subscription(one) for one in filters], party.take)
            stack.push_async_callback(party.client.stop)
            await asyncio.wait_for(party.client.wait_connected(), PATIENCE)
            found.append(party)
        yield found


async def what_works(broker: MosquittoProcess) -> set[tuple[str, str]]:
    """(`written` or `read`, topic) for all that a node and a device do with each other, and a node with itself."""
    shared = [*(share("homing", one) for one in READ), *SAID, NOTICE]
    seen = set()
    async with parties(broker, (NODE_USER, shared), (DEVICE, WRITTEN)) as (node, device):
        for writer, reader, topics in ((node, device, WRITTEN), (device, node, ANSWERED), (node, node, OWN)):
            for topic in topics:
                if await writer.may_write(topic):
                    seen.add(("written", topic))
            await reader.hears_no_more()
            seen |= {("read", topic) for topic in reader.heard}
    return seen


def deployed(broker: MosquittoProcess, without: str) -> None:
    """Take a line out of the broker's ACL; it reads the file again."""
    acl = broker.folder / "acl"
    acl.write_text("".join(line for line in acl.read_text().splitlines(keepends=True) if line.rstrip() != without))


def test_each_shipped_profile_has_its_rules_and_there_are_no_others() -> None:
    requests = [topic.filter() for topic in REQUESTS]
    nodes = [f"topic write {one}" for one in [*requests, *CANARIES]] + [f"topic read {one}" for one in [*READ, *SAID]]
    nodes.append(f"topic readwrite {NOTICES}/#")
    devices = [f"pattern read {one}" for one in requests] + [f"pattern write {one}" for one in [*READ, *SAID]]
    assert sorted(RULES) == sorted(nodes + [one.replace("+", "%u", 1) for one in devices])


async def test_S9_the_rules_are_enough(mosquitto: MosquittoProcess) -> None:
    topics = [*WRITTEN, *ANSWERED, *OWN]
    assert await what_works(mosquitto) == {(way, topic) for way in ("written", "read") for topic in topics}


async def test_S9_the_doctor_names_the_topics_that_are_refused(mosquitto: MosquittoProcess) -> None:
    options = MqttOptions.from_url(mosquitto.url, client_id="doctor")
    node = replace(options, username=NODE_USER, password=NODE_PASSWORD)
    needs = Needs(writes=[*WRITTEN, "foreign/topic"], reads=READ)
    facts = await asyncio.to_thread(probe, node, SystemClock().monotonic, "r1", needs)
    assert facts.refused_topics == ["write foreign/topic"]
    assert facts.publish_works
    assert facts.version


@pytest.mark.parametrize("rule", RULES)
async def test_S9_each_rule_is_needed(rule: str) -> None:
    broker = MosquittoProcess()
    with broker:
        broker.stop()
        command = broker._command()
        deployed(broker, without=rule)
        broker._command = lambda: command  # type: ignore[method-assign] # it would write the file anew
        broker.start()
        works = await what_works(broker)
    lacking = {(way, topic) for way in ("written", "read") for topic in (*WRITTEN, *ANSWERED, *OWN)} - works
    kind, access, pattern = rule.split()
    concerned = [pattern.replace("%u", DEVICE)] if kind == "pattern" else []
    if kind == "topic":
        concerned = [one for one in (*WRITTEN, *ANSWERED, *OWN) if matches(pattern, one)]
    # What cannot be written cannot be read either.
    expected = {("read", topic) for topic in concerned}
    assert lacking == (expected if access == "read" else expected | {("written", topic) for topic in concerned})


async def test_S9_a_device_reads_and_writes_its_own_topics_only(mosquitto: MosquittoProcess) -> None:
    others = [topic.replace(DEVICE, "SN0002") for topic in (*WRITTEN, *ANSWERED)]
    async with parties(mosquitto, (DEVICE, ["#"]), (NODE_USER, [])) as (device, node):
        for topic in (*others, *WRITTEN, *OWN, "homing-doctor/x", "$share/homing/x"):
            assert not await device.may_write(topic), topic
        for topic in (*[one for one in others if one.replace("SN0002", DEVICE) in WRITTEN], *WRITTEN, *OWN):
            assert await node.may_write(topic), topic
        await device.hears_no_more()
        assert device.heard == set(WRITTEN)


async def test_S9_a_node_can_answer_for_no_device_and_reads_no_commands(mosquitto: MosquittoProcess) -> None:
    async with parties(mosquitto, (NODE_USER, ["#"])) as (node,):
        for topic in (*ANSWERED, "elsewhere", "$SYS/broker/version"):
            assert not await node.may_write(topic), topic
        for topic in WRITTEN:
            assert await node.may_write(topic), topic
        await node.hears_no_more()
        assert node.heard == set()
