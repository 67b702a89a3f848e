"""Clients that others wrote, as devices of the broker in a node.

Run by `scripts/test --counterparts`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from homing_rig.ports import lasting_port
from tests.cluster.harness import Json, NodeProcess
from tests.cluster.test_own_broker import OwnBroker
from tests.counterparts.test_counterparts import COUNTERPARTS, TRY, Counterpart, running
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.counterparts

CLIENTS = [one for one in COUNTERPARTS if one.name.startswith(("aiomqtt", "MQTT.js"))]


@pytest.mark.parametrize("one", CLIENTS, ids=[one.name for one in CLIENTS])
async def test_it_does_what_it_is_told(one: Counterpart, tmp_path: Path) -> None:
    broker = OwnBroker(lasting_port())
    timeout = aiohttp.ClientTimeout(total=2 * PATIENCE)
    settings = {"HOMING_PROFILES_SHIPPED": one.profile, "HOMING_STORE_URL": f"rocks://{tmp_path}/data"}
    with (
        NodeProcess("", None, broker, HOMING_PROFILE=one.profile, **settings) as node,
        running(one, tmp_path, broker.port) as log,
    ):
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def ask(number: int) -> Json:
                case = one.cases[number]
                body = {"method": case.method, "params": case.params, "timeout": TRY}
                async with session.post(f"{node.url}/v1/devices/{one.device}/commands", json=body) as response:
                    said: Json = await response.json(content_type=None)
                    return said

            async def answered() -> bool:
                return (await ask(0)).get("state") == one.cases[0].state

            await eventually(answered)  # as soon as the device has subscribed
            for number, case in enumerate(one.cases):
                ended = await ask(number)
                assert ended.get("state") == case.state, (ended, log.read_text(errors="replace")[-2000:])
                assert case.result is None or ended["result"] == case.result
        assert await asyncio.to_thread(node.stop) == 0
