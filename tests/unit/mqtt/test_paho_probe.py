"""The doctor's probe of brokers that say less than Mosquitto."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.core.errors import BrokerUnavailableError
from app.mqtt.options import MqttOptions
from app.mqtt.paho_probe import BrokerFacts, Needs, probe
from app.runtime.system import SystemClock

VERSION_AT = 8
"""The place of the version in the first bytes of CONNECT: its type, a length of one byte, the name of the protocol,
then the version."""
ACCEPTED = b"\x20\x02\x00\x00"
V3, V5 = 4, 5


@contextmanager
def broker_of(*spoken: int) -> Iterator[int]:
    """A server that ends a connection without a word unless it speaks its version, on the port that it gives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    if client.recv(1024)[VERSION_AT] in spoken:
                        client.sendall(ACCEPTED)
                        client.recv(1024)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def seen_by_probe(port: int) -> BrokerFacts:
    options = MqttOptions.from_url(f"mqtt://127.0.0.1:{port}", client_id="doctor")
    return probe(options, SystemClock().monotonic, "run", Needs())


def test_a_broker_that_ends_the_connection_for_its_version_is_said_not_to_speak_it() -> None:
    with broker_of(V3) as port:
        assert seen_by_probe(port).protocol_refused


def test_a_broker_that_speaks_neither_version_does_not_answer() -> None:
    with broker_of() as port, pytest.raises(BrokerUnavailableError, match="does not answer CONNECT"):
        seen_by_probe(port)
