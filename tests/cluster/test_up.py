"""`homing up` as users run it: one process and one folder, killed and started again; and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, TypeVar

import aiohttp
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from app.core.identifiers import CANARY
from homing_rig.fork_server import ForkedNode
from homing_rig.ports import lasting_port
from homing_rig.programs import environment
from homing_rig.services import RunningProcess, ServiceProcess
from tests.certificates import make_certificate
from tests.cluster.harness import Device, Json, devices
from tests.waiting import PATIENCE, eventually

T = TypeVar("T")
KEY = re.compile(r"^homing_[0-9A-Z]{8}_\w+$", re.MULTILINE)


SETTINGS = {"HOMING_CLUSTER_DRAIN_DELAY": "0ms", "PYTHONUNBUFFERED": "1"}


class UpProcess(ServiceProcess):
    """`homing up` in a process of its own."""

    forked: ClassVar[bool] = True

    def __init__(self, *options: str) -> None:
        super().__init__(sys.executable)
        self.data = self.folder / "data"
        self.broker = f"127.0.0.1:{lasting_port()}"
        self._options = options

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.data / "secrets" / "admin.key").read_text().strip()

    @property
    def _words(self) -> Sequence[str]:
        place = ["--data", str(self.data), "--mqtt", self.broker, "--api", f"127.0.0.1:{self.port}"]
        return ["up", *place, "--profile", "dji", *self._options]

    def _command(self) -> Sequence[str]:
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        return ["env", *settings, self.binary, "-m", "app.cli", *self._words]

    def _launch(self, command: Sequence[str]) -> RunningProcess:
        if self.forked:
            return ForkedNode(environment(SETTINGS), self.folder, self.folder / "log", self._words)
        return super()._launch(command)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE) as response:  # noqa: S310 - our own URL
                return bool(response.status == HTTPStatus.OK)
        except (urllib.error.URLError, OSError):
            return False


Run = Callable[..., subprocess.CompletedProcess[str]]
"""Runs `homing` with these words to its end, in an environment of these variables alone."""


@pytest.fixture
def run(homing_program: Path) -> Run:
    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(homing_program), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    return run


def answer(device: Device, command: Json) -> None:
    device.answer(command)


class SupervisedProcess(UpProcess):
    """`homing up` as systemd starts it, which watches it and hears what it says."""

    forked = False

    def _command(self) -> Sequence[str]:
        asked = {"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "300000"}
        return ["env", *(f"{name}={value}" for name, value in asked.items()), *super()._command()]


async def test_systemd_is_told_that_it_is_ready_and_that_it_lives() -> None:
    process = SupervisedProcess("--open")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(process.folder / "notify"))
        heard.settimeout(PATIENCE)
        with process:
            said = [await asyncio.to_thread(heard.recv, 64) for _ in range(3)]
    assert said == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]


async def test_one_process_and_one_folder_outlive_a_kill(run: Run) -> None:
    with UpProcess() as up:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session,
            devices(f"mqtt://admin:{up.key}@{up.broker}", answer),
        ):

            async def call(method: str, path: str, body: Json | None = None, key: str | None = None) -> Json:
                headers = {"Authorization": f"Bearer {up.key if key is None else key}"}
                async with session.request(method, f"{up.url}{path}", json=body, headers=headers) as response:
                    return {"status": response.status, **await response.json()}

            body = {"method": "return_home", "timeout": "60s"}
            sent = await call("POST", "/v1/devices/SN1/commands", body)
            assert (sent["status"], sent["state"]) == (200, "succeeded")
            assert (await call("GET", "/v1/me", key=""))["status"] == 401
            assert (await call("GET", "/v1/me"))["principal"].startswith("admin")
            await eventually(lambda: "Ctrl-C ends it." in up.log_text)
            assert KEY.findall(up.log_text) == [up.key], "it is printed once"
            said = up.log_text.splitlines()[-5:]
            assert said[0] == f"Console   {up.url}/console/"
            assert f"HOMING_URL={up.url} HOMING_KEY=$(cat {up.data}/secrets/admin.key)" in said[1]
            assert "homing send" in said[2]
            assert "mosquitto_pub" in said[3]
            second = await asyncio.to_thread(run, "up", "--data", str(up.data), "--api", "127.0.0.1:0")
            assert second.returncode == 2, second.stderr
            assert re.search(rf"{up.data} is in use by process {up.pid} since 20", second.stderr)
            await asyncio.to_thread(up.kill)
            await asyncio.to_thread(up.start)
            assert (await call("GET", f"/v1/commands/{sent['id']}"))["state"] == "succeeded"
            assert KEY.findall(up.log_text) == [up.key], "and not again"
            assert await asyncio.to_thread(up.stop) == 0


def told(
    up: UpProcess,
    user: str | None,
    password: str | None,
    version: MQTTProtocolVersion,
    address: str = "",
    authority: Path | None = None,
) -> ReasonCode:
    """The reason code of CONNACK, those of 3.1.1 in the words of 5. With an `authority`, over TLS."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
    if authority is not None:
        client.tls_set(str(authority))
    client.username_pw_set(user, password)
    said: list[ReasonCode] = []
    client.on_connect = lambda _client, _data, _flags, reason, _properties: said.append(reason)
    host, _, port = (address or up.broker).partition(":")
    client.connect(host, int(port))
    while not said:
        client.loop(PATIENCE)  # its own code is an error, too, where CONNACK is one
    client.disconnect()
    return said[0]


class Listener:
    """A client of MQTT 5 in a thread of its own, over TCP or, on the port of the API, over WebSocket."""

    def __init__(self, up: UpProcess, user: str, password: str, *, websocket: bool = False) -> None:
        self.topics: list[str] = []
        self.granted: list[list[int]] = []
        self.published: list[int] = []
        self.ended: list[int] = []
        self.client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            protocol=MQTTProtocolVersion.MQTTv5,
            transport="websockets" if websocket else "tcp",
            reconnect_on_failure=False,
        )
        client.username_pw_set(user, password)
        client.on_message = lambda _client, _data, message: self.topics.append(message.topic)
        client.on_subscribe = lambda _c, _d, _id, codes, _p: self.granted.append([one.value for one in codes])
        client.on_publish = lambda _c, _d, _id, code, _p: self.published.append(code.value)
        client.on_disconnect = lambda _c, _d, _flags, code, _p: self.ended.append(code.value)
        host, _, port = up.broker.partition(":")
        client.connect(host, up.port if websocket else int(port))
        client.loop_start()

    async def subscribe(self, topic_filter: str) -> int:
        self.client.subscribe(topic_filter, 1)
        return (await self._next(self.granted))[0]

    async def publish(self, topic: str) -> int:
        self.client.publish(topic, b"{}", 1)
        return await self._next(self.published)

    async def stop(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)

    async def _next(self, said: list[T]) -> T:
        await eventually(lambda: bool(said))
        return said.pop()


async def test_clients_of_the_broker_log_in_and_may_what_their_keys_may(run: Run) -> None:
    """The broker says no as both versions have it."""
    v3, v5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
    with UpProcess() as up:
        directory = {"HOMING_ACCESS_URL": f"sqlite:///{up.data}/access.db"}

        def key_of(name: str, rules: list[str], device: str) -> str:
            done = run("access", "export", **directory)
            document = json.loads(done.stdout)
            document["roles"] = [*document["roles"], {"name": name, "rules": rules}]
            (up.folder / "access.json").write_text(json.dumps({"roles": document["roles"]}))
            assert run("access", "apply", str(up.folder / "access.json"), **directory).returncode == 0
            made = run("keys", "create", name, "--role", name, "--devices", device, **directory)
            assert made.returncode == 0, made.stderr
            return made.stdout.strip()

        dock = await asyncio.to_thread(key_of, "dock", ["allow read *:* on *", "allow publish *:* on *"], "SN1")
        await eventually(lambda: told(up, "dock", dock, v5).value == 0)
        for user, password, code in (
            ("dock", up.key, 0x86),
            ("nobody", dock, 0x86),
            ("dock", "wrong", 0x86),
            ("dock", None, 0x87),
            (None, None, 0x87),
        ):
            assert told(up, user, password, v5).value == code
            assert told(up, user, password, v3).value == code, "4 and 5 on the wire, which paho says as 0x86 and 0x87"
        device, admin = Listener(up, "dock", dock), Listener(up, "admin", up.key)
        assert await device.subscribe("thing/product/SN1/services") == 1
        assert await device.subscribe("thing/product/SN2/services") == 0x87
        assert await device.subscribe("#") == 1, "and it gets what it may read of it"
        assert await admin.subscribe("thing/product/+/events") == 1
        assert await device.subscribe("$SYS/broker/version") == 0x87, "it may not read metrics"
        assert await admin.subscribe("$SYS/broker/version") == 1
        await eventually(lambda: "$SYS/broker/version" in admin.topics)
        admin.topics.clear()
        assert await device.publish("thing/product/SN1/events") == 0
        assert await device.publish("thing/product/SN2/events") == 0x87
        assert await device.publish("thing/product/SN1/services") == 0x87, "it tells itself nothing"
        assert await admin.publish("thing/product/SN2/services") == 0
        assert await admin.publish("thing/product/SN1/services") == 0
        await eventually(lambda: "thing/product/SN1/services" in device.topics)
        assert {one for one in device.topics if "SN1" not in one} == set()
        assert [one for one in admin.topics if CANARY not in one] == ["thing/product/SN1/events"]
        revoked = await asyncio.to_thread(run, "keys", "revoke", dock.split("_")[1], **directory)
        assert revoked.returncode == 0, revoked.stderr
        await eventually(lambda: device.ended == [0x87])
        assert told(up, "dock", dock, v5).value == 0x86
        assert admin.ended == []
        await device.stop()
        await admin.stop()


async def test_a_device_has_a_key_of_its_own_and_its_own_topics_alone(run: Run, tmp_path: Path) -> None:
    """A thief of the key is that device until it is revoked, and no other one. Outside of this machine it needs TLS."""
    files, tls = make_certificate(tmp_path), f"127.0.0.1:{lasting_port()}"
    with UpProcess("--mqtts", tls, "--tls-cert", str(files.certificate), "--tls-key", str(files.key)) as up:
        directory = {"HOMING_ACCESS_URL": f"sqlite:///{up.data}/access.db"}

        def key_of(*words: str) -> str:
            made = run("keys", *words, **directory)
            assert made.returncode == 0, made.stderr
            return made.stdout.strip()

        old = await asyncio.to_thread(key_of, "create", "SN1", "--device")
        await eventually(lambda: told(up, "SN1", old, MQTTProtocolVersion.MQTTv5).value == 0)
        assert told(up, "SN1", old, MQTTProtocolVersion.MQTTv311, tls, files.authority).value == 0
        await eventually(lambda: f"Homing is up: mqtt://{up.broker}, mqtts://{tls} and {up.url}" in up.log_text)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session,
            devices(f"mqtt://SN1:{old}@{up.broker}", answer),
        ):
            headers, url = {"Authorization": f"Bearer {up.key}"}, f"{up.url}/v1/devices/SN1/commands"
            body = {"method": "return_home", "timeout": "60s"}
            async with session.post(url, json=body, headers=headers) as response:
                assert (response.status, (await response.json())["state"]) == (200, "succeeded")
            async with session.post(url, json=body, headers={"Authorization": f"Bearer {old}"}) as response:
                assert response.status == 404, "it has no rights over HTTP"
        thief, other_thief = Listener(up, "SN1", old), Listener(up, "SN1", old, websocket=True)
        assert await other_thief.subscribe("thing/product/SN1/services") == 1
        assert await thief.subscribe("#") == 1, "and it gets its own of it"
        assert await thief.subscribe("thing/product/SN2/services") == 0x87
        assert await thief.subscribe("$share/g/thing/product/SN1/services") == 0x87
        assert await thief.publish("thing/product/SN2/services_reply") == 0x87
        assert await thief.publish("thing/product/SN2/services") == 0x87
        admin = Listener(up, "admin", up.key)
        assert await admin.publish("thing/product/SN2/services") == 0
        assert await admin.publish("thing/product/SN1/services") == 0
        await eventually(lambda: "thing/product/SN1/services" in thief.topics)
        assert {one for one in thief.topics if "SN1" not in one} == set()
        new = await asyncio.to_thread(key_of, "rotate", old.split("_")[1], "--grace", "1h")
        await eventually(lambda: told(up, "SN1", new, MQTTProtocolVersion.MQTTv311).value == 0)
        assert thief.ended == [], "both count for an hour"
        assert (await asyncio.to_thread(run, "keys", "revoke", old.split("_")[1], **directory)).returncode == 0
        await eventually(lambda: thief.ended == other_thief.ended == [0x87])
        assert told(up, "SN1", new, MQTTProtocolVersion.MQTTv5).value == 0
        await thief.stop()
        await other_thief.stop()
        await admin.stop()


async def test_open_asks_nobody_and_makes_no_key() -> None:
    with UpProcess("--open") as up:
        async with aiohttp.ClientSession() as session, session.get(f"{up.url}/v1/me") as response:
            assert (await response.json())["open"] is True
        assert not (up.data / "access.db").exists()
        assert not (up.data / "secrets" / "admin.key").exists()
        await eventually(lambda: "Ctrl-C ends it." in up.log_text)
        assert "HOMING_KEY" not in up.log_text


def damaged_store(folder: Path) -> None:
    (folder / "store").mkdir(parents=True)
    (folder / "layout.json").write_text('{"layout": 1, "written_by": "0.3.0"}')
    (folder / "store" / "CURRENT").write_text("nonsense\n")


def damaged_directory(folder: Path) -> None:
    folder.mkdir()
    (folder / "layout.json").write_text('{"layout": 1, "written_by": "0.3.0"}')
    (folder / "access.db").write_bytes(b"nonsense" * 1000)


def nothing(folder: Path) -> None:
    del folder


@pytest.mark.parametrize(
    ("prepare", "options", "said"),
    [
        (damaged_store, [], "HOMING_STORE_URL: "),
        (damaged_directory, [], "access.db is damaged: it is no SQLite database; put a copy of it in its place"),
        (
            nothing,
            ["--open", "--mqtt", "0.0.0.0:{port}"],
            "0.0.0.0 can be reached from outside, and this broker does not",
        ),
        (nothing, ["--profile", "none"], "HOMING_PROFILE"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    run: Run, tmp_path: Path, prepare: Callable[[Path], None], options: list[str], said: str
) -> None:
    prepare(tmp_path / "data")
    port = str(lasting_port())
    words = [one.format(port=port) for one in options]
    place = ["--data", str(tmp_path / "data"), "--mqtt", f"127.0.0.1:{port}", "--api", "127.0.0.1:0"]
    ended = run("up", *place, *words)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 3
