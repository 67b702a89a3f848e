"""`homing up` is killed, a key is revoked meanwhile, and wills are judged by the rules that the next start reads."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.cluster.test_up import UpProcess, told
from tests.waiting import PATIENCE, eventually

NAMES = ("stays", "goes")
V5 = MQTTProtocolVersion.MQTTv5


def topic_of(name: str) -> str:
    return f"thing/product/{name}/events"


def administer(program: Path, up: UpProcess, *words: str) -> str:
    """Change the directory by hand, whether the node runs or not; what the verb says."""
    env = {"HOMING_ACCESS_URL": f"sqlite:///{up.data}/access.db"}
    command = [str(program), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def is_known(up: UpProcess, name: str, key: str) -> bool:
    return told(up, name, key, V5).value == 0


class DurableClient:
    """A client whose session outlives its connection. Its thread is that of the test."""

    def __init__(self, up: UpProcess, user: str, key: str, will: str | None = None) -> None:
        self.heard: list[str] = []
        self._done: list[object] = []
        self._client = client = paho.Client(CallbackAPIVersion.VERSION2, f"{user}-1", protocol=V5)
        client.username_pw_set(user, key)
        if will is not None:
            client.will_set(topic_of(will), will, 1)
        client.on_connect = lambda _client, _data, _flags, code, _properties: self._done.append(code.value)
        client.on_subscribe = lambda *_: self._done.append("subscribed")
        client.on_message = lambda _client, _data, message: self.heard.append(message.payload.decode())
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho
        expiry.SessionExpiryInterval = 3600
        host, _, port = up.broker.partition(":")
        client.connect(host, int(port), clean_start=False, properties=expiry)
        self._until(lambda: bool(self._done))
        assert self._done == [0]

    def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, 1)
        self._until(lambda: "subscribed" in self._done)

    def said_until(self, last: str) -> list[str]:
        """Return which of these came before the last one, which it says itself."""
        self._client.publish(topic_of(last), last, 1)
        self._until(lambda: last in self.heard)
        return [one for one in self.heard if one in NAMES]

    def end(self) -> None:
        self._client.disconnect()

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._client.loop(PATIENCE)


async def test_a_will_of_a_key_that_was_revoked_meanwhile_is_not_published(homing_program: Path) -> None:
    with UpProcess() as up:

        def key_of(name: str) -> str:
            return administer(homing_program, up, "keys", "create", name, "--role", "teller", "--devices", name)

        roles = {"roles": [{"name": "teller", "rules": ["allow publish *:* on *"]}]}
        (up.folder / "access.json").write_text(json.dumps(roles))
        await asyncio.to_thread(administer, homing_program, up, "access", "apply", str(up.folder / "access.json"))
        keys = {name: await asyncio.to_thread(key_of, name) for name in NAMES}
        for name, key in keys.items():
            await eventually(partial(is_known, up, name, key))
        watcher = DurableClient(up, "admin", up.key)
        watcher.subscribe("thing/product/+/events")
        tellers = [DurableClient(up, name, key, will=name) for name, key in keys.items()]
        await asyncio.to_thread(up.kill)
        await asyncio.to_thread(administer, homing_program, up, "keys", "revoke", keys["goes"].split("_")[1])
        await asyncio.to_thread(up.start)
        await eventually(partial(is_known, up, "admin", up.key))
        again = DurableClient(up, "admin", up.key)
        assert await asyncio.to_thread(again.said_until, "end") == ["stays"]
        for one in (watcher, again, *tellers):
            one.end()
