"""References for the cluster: the least that FastAPI can do, and the least that MQTT can do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import uvicorn
from fastapi import FastAPI
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from pydantic import BaseModel

from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import CommandFacts
from app.mqtt.options import MqttOptions
from app.runtime.system import SystemClock

ANSWER_TIMEOUT = 10.0
"""Seconds."""


class _Command(BaseModel):
    method: str
    params: dict[str, Any] = {}
    timeout: str | float | None = None
    profile: str | None = None
    one_way: bool = False


def no_op_application() -> FastAPI:
    """Takes the same request as a node, validates it, and does nothing with it."""
    application = FastAPI(openapi_url=None)

    @application.post("/v1/devices/{device_id}/commands")
    async def no_op(device_id: str, command: _Command) -> dict[str, str]:
        return {"device_id": device_id, "method": command.method}

    return application


def serve_no_op(port: int) -> None:
    """Serve the no-op application the way a node is served, until SIGTERM."""
    uvicorn.run(
        no_op_application(),
        host="127.0.0.1",
        port=port,
        http="httptools",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
    )


class PahoRoundTrip:
    """One paho client that sends a command to a device and waits for its answer, without anything in between.

    A context manager: connected inside the block only, as it would get the answers to everybody else's commands too.
    """

    def __init__(self, mqtt_url: str, profile: DeviceProfile) -> None:
        self._options = MqttOptions.from_url(mqtt_url, client_id="bench-paho")
        self._profile = profile
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=self._options.client_id, protocol=MQTTProtocolVersion.MQTTv5
        )
        self._awaited = b""
        self._answered = False
        self._subscribed = False

    def __enter__(self) -> Self:
        client = self._client
        client.on_socket_open = _without_delay
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        if self._options.username is not None:
            client.username_pw_set(self._options.username, self._options.password)
        client.connect(self._options.host, self._options.port)
        self._loop_until(client.is_connected)
        client.subscribe([(self._profile.responses[0].topic.filter(), 1)])
        self._loop_until(lambda: self._subscribed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()

    def measure(self, devices: Sequence[str], method: str, params: dict[str, Any], count: int) -> list[int]:
        """Microseconds of each of `count` round trips, one at a time."""
        latencies = []
        for number in range(count):
            command_id = f"000-{number:026d}"
            publication = self._command(devices[number % len(devices)], method, params | {"echo": number}, command_id)
            self._awaited, self._answered = command_id.encode(), False
            started = time.perf_counter()
            self._client.publish(publication.topic, publication.payload, qos=1)
            self._loop_until(lambda: self._answered)
            latencies.append(int((time.perf_counter() - started) * 1_000_000))
        return latencies

    def _command(self, device: str, method: str, params: dict[str, Any], command_id: str) -> Publication:
        now = int(SystemClock().wall() * 1_000_000)
        return self._profile.compose(CommandFacts(command_id, device, method, params, now, now + 10_000_000))

    def _loop_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + ANSWER_TIMEOUT
        while not condition():
            self._client.loop(ANSWER_TIMEOUT)
            if time.perf_counter() > deadline:
                raise BrokerUnavailableError("the bare round trip got no answer")

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self._answered = self._answered or self._awaited in message.payload

    def _on_subscribe(self, *_arguments: object) -> None:
        self._subscribed = True


def _without_delay(_client: object, _data: object, sock: Any) -> None:  # noqa: ANN401 - as paho types it
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
