"""The logs of nodes: nothing in normal operation, ids in every record, no secrets and no payloads (S7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from app.core.messages import Publication
from tests.cluster.harness import Device, Json, NodeProcess, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess, wait_until
from tests.waiting import PATIENCE

CANARY = "CANARY-7b1f"
NOISY = {"HOMING_LOG_FORMAT": "json", "HOMING_LOG_LEVEL": "debug"}


@pytest.fixture
def redis_server() -> Iterator[RedisProcess]:
    """A Redis for this test alone: nodes adopt the sessions of those that other tests killed."""
    with RedisProcess() as server:
        yield server


@pytest.fixture
def mosquitto() -> Iterator[MosquittoProcess]:
    with MosquittoProcess() as broker:
        yield broker


def records(node: NodeProcess) -> list[dict[str, Any]]:
    """Every line that a node wrote is one JSON object; ValueError otherwise."""
    return [json.loads(line) for line in node.log_text.splitlines()]


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


async def test_ordinary_commands_leave_no_line(redis_server: RedisProcess, mosquitto: MosquittoProcess) -> None:
    with cluster_of(3, redis_server, mosquitto, **NOISY) as cluster:
        async with devices(mosquitto, at_once), caller(cluster) as client:
            tally = await client.many(200, 16)
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in cluster.nodes))
        logs = [records(node) for node in cluster.nodes]
    assert tally.states == {"succeeded": 200}
    assert tally.forwarded
    for number, log in enumerate(logs, start=1):
        events = [one["event"] for one in log if one["level"] != "debug"]
        assert events.index("node_drains") == events.index("node_ready") + 1, events
        assert {one.get("node_id") for one in log} == {f"n{number}"}
        assert len({one.get("incarnation") for one in log}) == 1


async def test_S7_no_secret_and_no_payload_is_logged(redis_server: RedisProcess, mosquitto: MosquittoProcess) -> None:
    """Canaries in everything that a caller, a device or an operator may hand over, on good ways and bad ones."""

    def strangely(device: Device, command: Json) -> None:
        # An answer that fails, a second one, one with a foreign id, and two that cannot be read.
        base = f"thing/product/{command['device_id']}"
        good = {"tid": command["tid"], "bid": command["bid"], "method": command["method"]}
        failed = good | {"data": {"result": 7, "output": {"text": CANARY}}}
        for topic, payload in (
            (f"{base}/services_reply", failed | {"tid": CANARY}),
            (f"{base}/services_reply", failed | {"bid": CANARY}),
            (f"{base}/services_reply", failed),
            (f"{base}/services_reply", failed),
            (f"{base}/services_reply", CANARY),
            (f"{base}/events", {"method": CANARY, "data": CANARY}),
            ('thing/product/a"{"event":"forged"}/services_reply', failed),
        ):
            _puback = device._client.publish(Publication(topic, json.dumps(payload).encode()))
        _puback = device._client.publish(Publication(f"{base}/services_reply", f"{{{CANARY}\r\n\x1b[31m".encode()))

    with cluster_of(1, redis_server, mosquitto, **NOISY) as cluster:
        node = cluster.nodes[0]
        async with devices(mosquitto, strangely), caller(cluster) as client:
            params = {"text": CANARY, "line": f"{CANARY}\r\n{{}}"}
            for header in ("X_Nothing", "Idempotency_Key", "Authorization"):
                status, command = await client.command(0, "SN0001", params, **{header: CANARY})
                assert (status, command["state"]) == (200, "failed")
            status, _ = await client.command(0, "SN0001", params | {"other": 1}, Idempotency_Key=CANARY)
            assert status == 422
            status, _ = await client.command(0, "SN0001", params, timeout=CANARY)
            assert status == 422
            url, json_type = f"{node.url}/v1/devices/x/commands", {"Content-Type": "application/json"}
            async with client.session.post(url, data=f"{{{CANARY}".encode(), headers=json_type) as answer:
                assert answer.status == 422
            async with client.session.get(f"{node.url}/v1/commands/{CANARY}?{CANARY}={CANARY}") as answer:
                assert answer.status == 422
            await rubbish_over_http(node.port)
        node.stop()
        log = node.log_text
        events = {one["event"] for one in records(node)}
    assert "message_dropped" in events
    assert CANARY not in log


async def rubbish_over_http(port: int) -> None:
    """Send what is no HTTP at all; uvicorn warns of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{CANARY} \x00\r\n\r\n".encode())
    await reader.read()
    writer.close()
    await writer.wait_closed()


def test_S7_services_that_refuse_a_password_do_not_get_it_into_the_log() -> None:
    with (
        RedisProcess("--requirepass", "right") as redis,
        MosquittoProcess("allow_anonymous false") as broker,
        ExitStack() as stack,
    ):
        env = {
            "HOMING_STORE_URL": f"redis://:{CANARY}@127.0.0.1:{redis.port}/0",
            "HOMING_MQTT_URL": f"mqtt://homing:{CANARY}@127.0.0.1:{broker.port}",
            "HOMING_LOG_LEVEL": "debug",
        }
        nodes = [
            NodeProcess(name, redis, broker, module="app.cli", HOMING_LOG_FORMAT=name, **env)
            for name in ("json", "console")
        ]
        for node in nodes:
            stack.callback(node.kill)
            node._process = node._launch(node._command())  # not `start`: it never becomes ready
        for node in nodes:
            assert wait_until(lambda one=node: "node_waits" in one.log_text, PATIENCE)  # type: ignore[misc]
            assert CANARY not in node.log_text
