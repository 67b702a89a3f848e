"""A command whose caller asks to fail where the device is away, to a device that has said that it goes."""

from __future__ import annotations

from app.core.events.presence import Change, entry_of
from app.core.messages import ReceivedMessage
from app.events.plane import needed
from tests.api.rig import Rig, is_ready, running
from tests.waiting import eventually

DEVICE = "drone-1"


async def tell(rig: Rig, *, online: bool) -> None:
    payload = b'{"online": %b}' % (b"true" if online else b"false")
    rig.broker.publish(ReceivedMessage(f"homing/{DEVICE}/presence", payload, qos=1))

    async def is_known() -> bool:
        state = (await rig.http.get(f"/v1/devices/{DEVICE}/state")).json()
        return state["presence"]["online"] is online

    await eventually(is_known)


async def test_it_ends_at_once_and_nothing_is_sent(keeping: Rig) -> None:
    await tell(keeping, online=True)
    await tell(keeping, online=False)
    answer = await keeping.send("ok", if_offline="fail")
    body = answer.json()
    assert (answer.status_code, body["type"]) == (409, "urn:homing:problem:device-offline")
    assert body["error"]["code"] == "device_offline"
    assert f"{DEVICE} has been offline since 20" in body["error"]["message"]
    assert keeping.device.received == []
    explained = (await keeping.http.get(f"/v1/commands/{body['command']['id']}/explain")).json()
    assert "had said that it is offline" in explained["verdict"]["text"]

    assert (await keeping.send("ok")).status_code == 200, "who does not ask for that is not held up"
    assert (await keeping.send("ok", if_offline="send")).status_code == 200
    await tell(keeping, online=True)
    assert (await keeping.send("ok", if_offline="fail")).status_code == 200


async def test_silence_is_no_evidence(keeping: Rig) -> None:
    """Nor is what a node of an earlier version noted, which says nothing of how it was known."""
    await tell(keeping, online=True)
    told = entry_of(Change(DEVICE, online=False, said=False), 1)
    await needed(keeping.application.ports.events).publisher.publish("events", [told])
    assert (await keeping.send("ok", if_offline="fail")).status_code == 200


async def test_with_mqtt_3_1_1_nothing_waits_at_the_broker_for_a_device_that_has_gone() -> None:
    """Nothing expires there: the command would reach the device whenever it comes back."""
    async with running(events={"url": "memory://"}, mqtt={"url": "mqtt://broker", "version": "3.1.1"}) as rig:
        await eventually(lambda: is_ready(rig))
        await tell(rig, online=True)
        await tell(rig, online=False)
        assert (await rig.send("ok")).json()["type"] == "urn:homing:problem:device-offline"
        assert rig.device.received == []
        assert (await rig.send("ok", if_offline="send")).status_code == 200
