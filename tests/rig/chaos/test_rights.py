"""The rig runs under least privilege: nodes, devices and the rig itself are users of their own (S9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.runtime.system import SystemClock
from homing_rig.chaos.history import HistoryWriter
from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.recorder import Recorder
from homing_rig.chaos.rig import Rig, rig_of
from homing_rig.chaos.run import prepare
from homing_rig.chaos.shared_figures import REFUSED
from homing_rig.rights import DEVICE_USER, NODE_USER, PASSWORD, RIG_USER
from tests.services import require_programs

COMMAND, ANSWER = "homing/SN000001/command", "homing/SN000001/response"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    require_programs()
    options = ChaosOptions(scenario="R1", short=True)
    scenario, form, _ = prepare(options)
    with HistoryWriter(tmp_path / "history.jsonl") as writer:
        async with rig_of(
            scenario, replace(form, nodes=2), options, [], Recorder(writer, SystemClock()), tmp_path
        ) as running:
            yield running


async def may_write(rig: Rig, user: str, topic: str) -> bool:
    options = MqttOptions(client_id=f"{user}-1", host="127.0.0.1", port=rig.broker.port)
    client = PahoMqttClient(replace(options, username=user, password=PASSWORD), Counter())
    await client.start([], lambda _: None)
    try:
        await client.wait_connected()
        await client.publish(Publication(topic, b"{}"))
    except BrokerUnavailableError:
        return False
    finally:
        await client.stop()
    return True


async def test_S9_everybody_logs_in_and_nodes_have_the_rights_of_nodes(rig: Rig) -> None:
    connections = Counter(one["user"] for one in await rig.redis.client_list())
    assert connections.keys() == {NODE_USER, RIG_USER}
    assert connections[NODE_USER] >= 2 * len(rig.nodes)
    await rig.note_counters()
    assert REFUSED.reached(rig.measures[REFUSED.name])

    async with Redis(port=rig.redis_service.port, username=NODE_USER, password=PASSWORD) as node:
        with pytest.raises(NoPermissionError):
            await node.flushall()
    await rig.note_counters()
    assert not REFUSED.reached(rig.measures[REFUSED.name])

    written = {(user, topic) for user in (NODE_USER, DEVICE_USER, RIG_USER) for topic in (COMMAND, ANSWER)}
    allowed = {(user, topic) for user, topic in written if await may_write(rig, user, topic)}
    assert allowed == {(NODE_USER, COMMAND), (DEVICE_USER, ANSWER)}

    logged_in = [line for line in rig.broker.log_text.splitlines() if f"u'{NODE_USER}'" in line]
    for name in rig.nodes:
        assert any(f"-{name}-" in line for line in logged_in), name
