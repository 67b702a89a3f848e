"""One trace per command, over two nodes, in a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.core.messages import Publication, UserProperties
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import Json, caller, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5
"""Kinds of spans in OTLP."""
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class SpanSeen:
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    node: str
    attributes: dict[str, Any]


@dataclass
class Collector:
    """Keeps all spans it is sent; says 503 while `away`."""

    url: str
    spans: list[SpanSeen] = field(default_factory=list)
    away: bool = False
    asked: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.away:
            return web.Response(status=400)
        body = await request.read()  # aiohttp has undone the compression
        sent = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for of_node in sent.resource_spans:
            about = {one.key: one.value.string_value for one in of_node.resource.attributes}
            for scope in of_node.scope_spans:
                for span in scope.spans:
                    seen = SpanSeen(
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        about["service.instance.id"],
                        {one.key: one.value.string_value or one.value.int_value for one in span.attributes},
                    )
                    assert about["service.name"] == "fleet"
                    self.spans.append(seen)
        return web.Response(content_type="application/x-protobuf")

    def trace_of(self, command_id: str) -> list[SpanSeen]:
        """All spans of the trace to which this command belongs."""
        traces = {one.trace_id for one in self.spans if one.attributes.get("homing.command_id") == command_id}
        return [one for one in self.spans if one.trace_id in traces]


@pytest.fixture
def redis_server() -> Iterator[RedisProcess]:
    """A Redis for this test alone: nodes adopt the sessions of those that other tests killed."""
    with RedisProcess() as server:
        yield server


@pytest.fixture
def mosquitto() -> Iterator[MosquittoProcess]:
    with MosquittoProcess() as broker:
        yield broker


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found = Collector("")
    application = web.Application()
    application.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def device(broker: MosquittoProcess, *, echoes: bool) -> AsyncIterator[list[tuple[Json, UserProperties]]]:
    """Speaks Homing's own protocol, and answers everything; `echoes` the user properties, as devices may."""
    received: list[tuple[Json, UserProperties]] = []
    options = MqttOptions.from_url(broker.url, client_id="device")
    client = PahoMqttClient(options, Counter())

    def answer(delivery: InboundDelivery) -> None:
        message = delivery.message
        command: Json = json.loads(message.payload)
        received.append((command, message.user_properties))
        reply = json.dumps({"id": command["id"], "status": "ok", "result": 1}).encode()
        topic = message.response_topic or ""
        _puback = client.publish(Publication(topic, reply, user_properties=message.user_properties if echoes else ()))
        delivery.acknowledge()

    await client.start([Subscription("homing/+/command")], answer)
    await client.wait_connected()
    yield received
    await client.stop()


def settings(collector: Collector, **more: str) -> dict[str, str]:
    return {
        "HOMING_TRACING_ENDPOINT": collector.url,
        "HOMING_TRACING_SERVICE_NAME": "fleet",
        "HOMING_PROFILE": "homing",
        "HOMING_LOG_FORMAT": "json",
        **more,
    }


@pytest.mark.parametrize("device_is", ["plain", "echoing"])
async def test_one_connected_trace_over_two_nodes(
    device_is: str, collector: Collector, redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    echoes = device_is == "echoing"
    env = settings(collector)
    with cluster_of(2, redis_server, mosquitto, **env) as cluster:
        async with device(mosquitto, echoes=echoes) as received, caller(cluster) as client:
            command: Json = {}
            trace_id = ""
            for number in range(20):
                trace_id = f"{number:031x}a"
                given = f"00-{trace_id}-b7ad6b7169203331-01"
                status, command = await client.command(0, f"dock-{number}", {}, traceparent=given)
                assert (status, command["state"]) == (200, "succeeded")
                if command["forwarded"]:
                    break
            assert command["forwarded"], "all responses landed on the home node"
            await eventually(lambda: len(collector.trace_of(command["id"])) >= 6)
    spans = collector.trace_of(command["id"])
    assert {one.trace_id for one in spans} == {trace_id}
    by_name = {one.name: one for one in spans}
    server, publish = by_name["POST /v1/devices/{device_id}/commands"], by_name["publish"]
    parents = {one.name: (one.node, one.kind, one.parent_id) for one in spans}
    assert len(spans) == len(parents)
    assert parents == {
        server.name: ("n1", SERVER, "b7ad6b7169203331"),
        "store register": ("n1", CLIENT, server.span_id),
        "publish": ("n1", PRODUCER, server.span_id),
        "receive": ("n2", CONSUMER, publish.span_id if echoes else server.span_id),
        "store respond": ("n2", CLIENT, by_name["receive"].span_id),
        "deliver": ("n1", CONSUMER, server.span_id),
    }
    # The device got the context twice: as a user property, and where its protocol has room for it.
    sent, properties = next((one, given) for one, given in received if one["id"] == command["id"])
    assert dict(properties) == {"traceparent": f"00-{trace_id}-{publish.span_id}-01"}
    assert sent["traceparent"] == f"00-{trace_id}-{server.span_id}-01"


async def test_a_caller_that_is_not_sampled_leaves_no_span(
    collector: Collector, redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    env = settings(collector, HOMING_TRACING_SAMPLE_RATIO="0")
    with cluster_of(1, redis_server, mosquitto, **env) as cluster:
        async with device(mosquitto, echoes=False) as received, caller(cluster) as client:
            await client.command(0, "dock-1", {}, traceparent=CALLER[:-1] + "0")
            await client.command(0, "dock-1", {})
            status, _ = await client.command(0, "dock-1", {}, traceparent=CALLER)
            assert status == 200
            await eventually(lambda: len(collector.spans) >= 5)
    assert {one.trace_id for one in collector.spans} == {CALLER.split("-")[1]}
    assert [bool(properties) for _, properties in received] == [False, False, True]
    assert ["traceparent" in sent for sent, _ in received] == [False, False, True]


async def test_a_collector_that_fails_costs_one_line_and_no_command(
    collector: Collector, redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    collector.away = True
    with cluster_of(1, redis_server, mosquitto, **settings(collector)) as cluster:
        node = cluster.nodes[0]
        async with device(mosquitto, echoes=False), caller(cluster) as client:

            async def lost(more_than: int) -> bool:
                status, _ = await client.command(0, "dock-1", {})
                assert status == 200
                return (await asyncio.to_thread(cluster.counters, "trace.lost"))[0] > more_than

            await eventually(lambda: lost(0))
            (so_far,) = await asyncio.to_thread(cluster.counters, "trace.lost")
            await eventually(lambda: lost(so_far))
            collector.away = False
            await eventually(lambda: collector.spans)
        node.stop()
        events = [json.loads(line)["event"] for line in node.log_text.splitlines()]
    # One line an outage, however many batches it costs. A busy collector may miss another batch, or the last one.
    assert 0 < events.count("traces_resumed") <= events.count("traces_lost") <= events.count("traces_resumed") + 1
    assert "library_message" not in events
