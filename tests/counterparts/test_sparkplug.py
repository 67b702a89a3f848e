"""An edge node of pysparkplug speaks unasked: births are events, and its death, which is its will, is presence."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from homing_client import AsyncHoming
from tests.cluster.harness import cluster_of
from tests.cluster.test_families import OpenBroker
from tests.counterparts.test_counterparts import COUNTERPARTS, running
from tests.services import RedisProcess
from tests.waiting import eventually

pytestmark = pytest.mark.counterparts


async def test_it_is_there_from_its_birth_to_its_death(tmp_path: Path) -> None:
    (one,) = (each for each in COUNTERPARTS if each.name == "pysparkplug")
    with OpenBroker() as broker, RedisProcess() as server:
        env = {"HOMING_PROFILES_SHIPPED": "sparkplug-b", "HOMING_PROFILE": "sparkplug-b"}
        with cluster_of(2, server, broker, HOMING_EVENTS_URL=server.node_url, **env) as cluster:
            async with AsyncHoming(cluster.nodes[0].url) as homing:

                async def presence() -> object:
                    return (await homing.events.of_device(one.device))["presence"]["online"]

                async def said() -> Counter[str]:
                    return Counter([event["topic"].split("/")[2] async for event in homing.events.read("spBv1.0/#")])

                assert await presence() is None
                for life in (1, 2):  # each with two births and two deaths
                    with running(one, tmp_path, broker.port):

                        async def born(count: int) -> bool:
                            return await presence() is True and await said() >= Counter(NBIRTH=count, DBIRTH=count)

                        await eventually(partial(born, 2 * life - 1))
                        again = await homing.call(one.device, "rebirth", timeout="60s")
                        assert again.result["aliases"] == [{"name": "Speed", "alias": 7}]
                        await eventually(partial(born, 2 * life))

                    async def gone(count: int = 2 * life) -> bool:
                        return await presence() is False and await said() >= Counter(NDEATH=count)

                    await eventually(gone)
