"""Exchanges, by both twins of the client on a real node."""

from __future__ import annotations

import pytest

from homing_client import ConflictError, InvalidInputError, NotFoundError
from tests.api.rig import running
from tests.api.serving import serving
from tests.client.conftest import Open
from tests.client.twins import done
from tests.waiting import eventually


async def test_a_message_is_published_for_queues_that_chose_its_key(open_homing: Open) -> None:
    async with running(events={"url": "memory://"}) as rig:

        async def is_open() -> bool:
            return (await rig.http.get("/v1/exchanges")).is_success and (
                await rig.http.put("/v1/exchanges/ops", json={"kind": "topic"})
            ).is_success

        await eventually(is_open)
        async with serving(rig) as served:
            homing = open_homing(f"http://127.0.0.1:{served.port}")
            assert (await done(homing.exchanges.declare, "ops"))["kind"] == "topic"
            with pytest.raises(ConflictError):
                await done(homing.exchanges.declare, "ops", "fanout")
            with pytest.raises(InvalidInputError, match="no queue has a route"):
                await done(homing.exchanges.publish, "ops", "low.battery", {"n": 1})
            unheard = await done(homing.exchanges.publish, "ops", "low.battery", 0, even_unrouted=True)
            assert unheard["routed"] == []
            await done(homing.queues.declare, "alarms", {"routes": [{"exchange": "ops", "key": "low.*"}]})
            named = {"message_id": "m-1", "idempotency_key": "k"}
            told = [await done(homing.exchanges.publish, "ops", "low.battery", {"n": 1}, **named) for _ in range(2)]
            assert (told[0], told[0]["routed"]) == (told[1], ["alarms"])
            (message,) = await done(homing.queue("alarms").take, wait="30s")
            assert (message.event["data"], message.event["id"]) == ({"n": 1}, "m-1")
            assert (await done(homing.exchanges.get, "ops"))["routes"] == [{"queue": "alarms", "key": "low.*"}]
            with pytest.raises(ConflictError):
                await done(homing.exchanges.delete, "ops")
            await done(homing.queues.delete, "alarms")
            await done(homing.exchanges.delete, "ops")
            with pytest.raises(NotFoundError):
                await done(homing.exchanges.get, "ops")
            assert await done(homing.exchanges.all) == []
