"""Talkers of the rig, and a broker that does not answer."""

from __future__ import annotations

import asyncio
import math
import re

import pytest

from app.mqtt.options import MqttOptions
from homing_rig.talkers import Talkers, UnansweredError
from tests.unit.mqtt.fake_broker import FakeBroker

TOPICS = ["homing/SN1/event", "homing/SN2/event"]


async def test_talkers_end_with_the_topics_and_connections_that_stand_when_no_puback_comes() -> None:
    async with FakeBroker(puback_code=None) as broker:
        talkers = Talkers(lambda one: MqttOptions.from_url(broker.url, client_id=one), TOPICS, patience=0.01)
        await talkers.start()
        talking = asyncio.create_task(talkers.talk(rate=300, seconds=math.inf))
        await broker.wait_for_packets(0x30, 2)
        talkers.stop_talking()
        with pytest.raises(UnansweredError) as caught:
            await talking
        await talkers.stop()
    standing = [rf"talker-{n} \(connected 1 times\) waits for \d+, as \d+ on {one}" for n, one in enumerate(TOPICS)]
    assert re.fullmatch(f"nothing was answered for 0.01 s: {'; '.join(standing)}", str(caught.value))
