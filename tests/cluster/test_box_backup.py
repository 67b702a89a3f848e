"""A backup of `homing up`, taken while it writes, is restored: the copy answers as the original did."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import aiohttp
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.cluster.harness import Json, devices
from tests.cluster.test_up import Run, UpProcess, answer, run
from tests.waiting import PATIENCE, eventually

__all__ = ["run"]  # a fixture

PATHS = {
    "commands": "commands",
    "devices": "devices",
    "events": "events?topic=thing/product/SN1/events&from=-1h",
    "keys": "keys",
    "principals": "principals",
    "retained": "broker/retained",
    "sessions": "broker/sessions",
    "value": "state/fleet/note",
}


class Client:
    """A client whose session outlives its connections."""

    def __init__(self, up: UpProcess, client_id: str) -> None:
        self.payloads: list[bytes] = []
        self.present: list[bool] = []
        self.client = client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
        client.username_pw_set("admin", up.key)
        client.on_connect = lambda _c, _d, flags, _code, _p: self.present.append(flags.session_present)
        client.on_message = lambda _c, _d, message: self.payloads.append(bytes(message.payload))
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho
        expiry.SessionExpiryInterval = 3600
        host, _, port = up.broker.partition(":")
        client.connect(host, int(port), clean_start=False, properties=expiry)
        client.loop_start()

    async def subscribe(self, topic: str) -> None:
        granted: list[object] = []
        self.client.on_subscribe = lambda _c, _d, _id, codes, _p: granted.append(codes)
        self.client.subscribe(topic, 1)
        await eventually(lambda: bool(granted))

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        said = self.client.publish(topic, payload, 1, retain)
        await asyncio.to_thread(said.wait_for_publish, PATIENCE)

    async def leave(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)


async def everything(up: UpProcess) -> dict[str, Json]:
    """Read what must be the same after the restore."""
    found: dict[str, Json] = {}
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {up.key}"}) as session:
        for name, path in PATHS.items():
            async with session.get(f"{up.url}/v1/{path}") as response:
                assert response.status == 200, (name, await response.text())
                found[name] = await response.json()
    (away,) = [one for one in found.pop("sessions")["sessions"] if one["client_id"] == "away"]
    found["away"] = {name: away[name] for name in ("principal", "subscriptions", "waiting", "expiry_s")}
    found["retained"]["retained"] = [
        one for one in found["retained"]["retained"] if not one["topic"].startswith(("noise", "$SYS/"))
    ]
    found["events"].pop("cursor")  # it follows the clock
    for one in found["keys"]["keys"]:
        one.pop("last_used_at")  # asking is a use
    return found


async def taken(run: Run, up: UpProcess, target: Path, *options: str) -> Json:
    done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
        run, "backup", str(target), "--data", str(up.data), "--json", *options
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return] # any JSON


async def write_on(client: Client, enough: asyncio.Event) -> None:
    """Publish one message after the other."""
    while not enough.is_set():
        await client.publish("noise", b"x", retain=True)


async def test_the_copy_of_a_node_that_writes_answers_as_the_original(run: Run) -> None:
    with UpProcess() as up:
        away, talker = Client(up, "away"), Client(up, "talker")
        await away.subscribe("thing/product/SN1/events")
        await away.leave()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {up.key}"}) as session:
            async with devices(f"mqtt://admin:{up.key}@{up.broker}", answer):
                body = {"method": "return_home", "timeout": "60s"}
                async with session.post(f"{up.url}/v1/devices/SN1/commands", json=body) as response:
                    assert (await response.json())["state"] == "succeeded"
            async with session.put(f"{up.url}/v1/state/fleet/note", json={"n": 1}) as response:
                assert response.status < 300, await response.text()
        await talker.publish("thing/product/SN1/events", b'{"n": 1}')
        await talker.publish("lamp/note", b"kept", retain=True)
        noisy = Client(up, "noisy")
        enough = asyncio.Event()
        writing = asyncio.create_task(write_on(noisy, enough))
        await eventually(lambda: bool(noisy.present))
        assert (await taken(run, up, up.folder / "first"))["files"] > 5
        await taken(run, up, up.folder / "with", "--secrets")
        enough.set()
        await writing
        await noisy.leave()
        await talker.leave()
        told = await everything(up)
        assert await asyncio.to_thread(up.stop) == 0
        await taken(run, up, up.folder / "stopped")
        assert sorted(one.name for one in up.folder.iterdir() if one.name.startswith(".homing")) == []

        new = up.folder / "restored"
        done = await asyncio.to_thread(run, "restore", str(up.folder / "with"), "--data", str(new))
        assert done.returncode == 0, done.stderr
        assert f"homing up --data {new}" in done.stderr
        up.data = new
        await asyncio.to_thread(up.start)
        assert await everything(up) == told
        back = Client(up, "away")
        await eventually(lambda: b'{"n": 1}' in back.payloads)
        assert back.present == [True]
        await back.leave()
        assert await asyncio.to_thread(up.stop) == 0
