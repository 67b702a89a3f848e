"""Nodes, liveness, readiness."""

from __future__ import annotations

import asyncio

from tests.api.rig import Rig
from tests.api.test_send import ASYNC, problem


async def test_the_node_shows_itself(rig: Rig) -> None:
    await rig.send("ok")
    await rig.send("silent", headers=ASYNC)
    body = (await rig.http.get("/v1/nodes")).json()
    (one,) = body["nodes"]
    assert one.pop("started_at").endswith("Z")
    assert one == {
        "node_id": "node-a",
        "incarnation": rig.node.info.incarnation,
        "self": True,
    }
    assert body["self"]["state"] == "ready"
    assert body["self"]["pending"] == 1
    assert body["self"]["waiters"] == 0
    assert body["self"]["queues"]["pending"] == {"size": 1, "bound": 20_000}
    assert set(body["self"]["queues"]) == {
        "pending",
        "waiters",
        "streams",
        "overviews",
        "watched",
        "replies",
        "deliveries",
        "held_devices",
        "kept_claims",
        "fleet_runs",
        "records",
    }
    assert body["self"]["counters"]["response.local"] == 1


async def test_waiters_are_counted_while_they_wait(rig: Rig) -> None:
    parked = asyncio.create_task(rig.send("silent"))
    command = await rig.heard()
    assert (await rig.http.get("/v1/nodes")).json()["self"]["waiters"] == 1
    rig.device.answer(command, '"status":"ok"')
    await parked
    assert (await rig.http.get("/v1/nodes")).json()["self"]["waiters"] == 0


async def test_a_node_that_runs_is_alive_whatever_else_is_away(rig: Rig) -> None:
    rig.store.away = True
    rig.broker.disconnect("node-a")
    response = await rig.http.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_a_ready_node_says_what_it_looked_at(rig: Rig) -> None:
    response = await rig.http.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "state": "ready",
        "checks": {"store": "ok", "mqtt": "ok", "cluster": "ok", "canary": "ok"},
    }


async def test_a_node_without_store_or_broker_is_not_ready(rig: Rig) -> None:
    rig.store.away = True
    body = problem(await rig.http.get("/readyz"), 503, "not-ready")
    assert body["state"] == "not_ready"
    assert body["checks"] == {"store": "the store does not answer", "mqtt": "ok", "cluster": "ok", "canary": "ok"}
    assert body["detail"] == "store: the store does not answer"
    rig.store.away = False
    rig.broker.disconnect("node-a")
    response = await rig.http.get("/readyz")
    assert problem(response, 503, "not-ready")["checks"]["mqtt"] == "no connection to the MQTT broker"
    assert response.headers["retry-after"] == "1"
    rig.broker.restore("node-a")
    assert (await rig.http.get("/readyz")).status_code == 200


async def test_a_stopped_node_is_not_ready(rig: Rig) -> None:
    await rig.node.stop()
    assert problem(await rig.http.get("/readyz"), 503, "not-ready")["state"] == "stopped"
