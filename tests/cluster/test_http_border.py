"""The HTTP border of a node as users run it: few open files, settings, a real listener."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from homing_rig.fork_server import ForkedNode
from homing_rig.ports import lasting_port
from homing_rig.programs import environment
from homing_rig.services import RunningProcess
from tests.services import wait_until
from tests.waiting import PATIENCE

OPEN_FILES = 256


@contextmanager
def node(*, open_files: int | None = None, log: Path = Path(os.devnull), **settings: str) -> Iterator[int]:
    """The port of a node of its own, which waits for a broker that never comes."""

    def limit() -> None:
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    port = lasting_port()
    given = {"HOMING_API_PORT": str(port), "HOMING_MQTT_URL": "mqtt://127.0.0.1:1", "HOMING_CLUSTER_DRAIN_DELAY": "0s"}
    process: RunningProcess
    if open_files is None:
        process = ForkedNode(environment(given | settings), Path.cwd(), log)
    else:
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve"],
                env=environment(given | settings),
                preexec_fn=limit,  # noqa: PLW1509 - it only makes a system call
                stderr=stderr,
            )
    try:
        wait_until(lambda: status(port) == 200, 60)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def status(port: int, path: str = "/healthz", **headers: str) -> int:
    """The status of an answer; 0 when there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def counters(port: int) -> dict[str, int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    prefix = 'homing_http_connections_closed_total{reason="'
    return {line[len(prefix) :].partition('"')[0]: int(float(line.split()[-1])) for line in lines if prefix in line}


@pytest.mark.parametrize("sent", [b"", b"GET /half"])
def test_more_sockets_than_files_leave_health_alive(sent: bytes) -> None:
    with node(open_files=OPEN_FILES) as port, ExitStack() as stack:
        for _ in range(OPEN_FILES + 100):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            one.sendall(sent)
        for _ in range(20):
            assert status(port) == 200
        assert counters(port)["made_room"] > 100


@pytest.mark.parametrize("sent", [b"", b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00"])
def test_more_clients_of_its_broker_than_files_leave_health_alive(sent: bytes, tmp_path: Path) -> None:
    """They have their part of the files, and those of callers and of the store are no part of it."""
    broker = f"mqtt://127.0.0.1:{lasting_port()}"
    running = node(
        open_files=OPEN_FILES,
        HOMING_BROKER_URL=broker,
        HOMING_MQTT_URL=broker,
        HOMING_STORE_URL=f"rocks://{tmp_path}/store",
    )
    with running as port, ExitStack() as stack:
        for _ in range(OPEN_FILES + 100):
            address = ("127.0.0.1", int(broker.rpartition(":")[2]))
            one = stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
            with suppress(ConnectionError):
                one.sendall(sent)
        for _ in range(20):
            assert status(port) == 200
        wait_until(lambda: refused_by_the_broker(port) > 100, PATIENCE)


def refused_by_the_broker(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
        said = response.read().decode()
    start = 'homing_broker_refused_total{reason="server_busy"} '
    return next((int(float(line.removeprefix(start))) for line in said.splitlines() if line.startswith(start)), 0)


def test_the_limits_are_settings() -> None:
    with (
        node(
            HOMING_API_KEEP_ALIVE="1s", HOMING_API_MAX_CONNECTIONS="4", HOMING_API_MAX_CONNECTIONS_PER_PEER="2"
        ) as port,
        ExitStack() as stack,
    ):
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        wait_until(lambda: counters(port).get("idle", 0) >= 1, 30)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        assert 'homing_queue_bound{queue="connections"} 4.0' in text
        connection.close()


def test_the_names_of_a_node_are_a_setting() -> None:
    with node(HOMING_API_HOSTS="homing.example.com") as port:
        assert status(port, Host="homing.example.com") == 200
        assert status(port, Host="evil.example") == 421


def test_without_a_setting_the_loopback_has_its_own_names_and_other_listeners_all() -> None:
    with node() as port:
        assert status(port, Host="evil.example") == 421
        assert status(port, Host=f"localhost:{port}", Origin="http://evil.example") == 403
    with node(HOMING_API_HOST="0.0.0.0", HOMING_ACCESS_OPEN="true") as port:  # noqa: S104 - what is tested
        assert status(port, Host="homing.example.com") == 200
        assert status(port, Host="10.1.2.3:8080") == 200
        assert status(port, Host="homing.example.com", Origin="http://evil.example") == 403


def test_a_proxy_on_the_same_machine_opens_a_node_only_where_that_is_meant() -> None:
    with node(HOMING_API_HOSTS="*") as port:
        assert status(port) == 200
        assert status(port, **{"X-Forwarded-For": "203.0.113.9"}) == 403
    with node(HOMING_API_HOSTS="*", HOMING_ACCESS_OPEN="true") as port:
        assert status(port, **{"X-Forwarded-For": "203.0.113.9"}) == 200


def test_a_name_that_is_none_is_a_wrong_setting() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "serve"],
        env=environment({"HOMING_API_HOSTS": "a.example, http://b.example"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "homing: HOMING_API_HOSTS: 'http://b.example' is no host name or address; allowed: names without port, or *\n"
    )


HEAD = b"POST /v1/devices/d/commands HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REQUESTS = (
    HEAD + b'Content-Length: 15\r\n\r\n{"method":"ok"}',
    HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"met\r\na\r\nhod":"ok"}\r\n0\r\nX: y\r\n\r\n',
    HEAD + b'Expect: 100-continue\r\nContent-Length: 15\r\n\r\n{"method":"ok"}',
    HEAD + b"Connection: close\r\nContent-Length: 200000\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://localhost/v1/nodes?x=%ff HTTP/1.0\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: null\r\n\r\n",
)
INSERTED = (
    *(b"\r\n", b"\n", b"\0", b":", b" ", b"\xff", b"0\r\n\r\n", b"x" * 5000, b"a:b\r\n" * 200),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n"),
)


def distorted(random: Random) -> bytes:
    """A few requests with a few mistakes."""
    data = b"".join(random.choice(REQUESTS) for _ in range(random.randint(1, 6)))
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(data) + 1)
        kept = random.choice((0, 0, random.randint(1, 20)))
        data = data[:at] + (random.choice(INSERTED) if not kept else b"") + data[at + kept :]
    return data


async def send(port: int, random: Random) -> None:
    """In pieces, and with every way to end a connection."""
    data = distorted(random)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while data:
            size = random.choice((7, 100, 5000, len(data)))
            writer.write(data[:size])
            data = data[size:]
            await asyncio.sleep(0)
        if random.random() < 0.5:
            writer.write_eof()
        if random.random() < 0.5:
            async with asyncio.timeout(0.1):
                await reader.read(1000)
        if random.random() < 0.3:
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


def connections_of(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/v1/nodes")
    size: int = json.load(connection.getresponse())["self"]["queues"]["connections"]["size"]
    connection.close()
    return size


async def test_distorted_requests_leave_nothing_behind_and_no_traceback(tmp_path: Path) -> None:
    random = Random(7)
    log = tmp_path / "log"
    with node(log=log) as port:
        for _ in range(10):
            await asyncio.gather(*(send(port, random) for _ in range(40)))
        await asyncio.to_thread(wait_until, lambda: connections_of(port) == 1, 60)
        assert status(port) == 200
    text = log.read_text()
    assert "Traceback" not in text
    assert "library_message" not in text
    assert text.count("http_connection_closed") < 50
