"""A node with something to look at: commands that went well, failed, timed out, are open; and hostile ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page, expect

from app.core.messages import Publication, ReceivedMessage
from tests.api.rig import DEVICE, Rig, running
from tests.api.serving import Served, serving
from tests.waiting import eventually

ASYNC = {"Prefer": "respond-async"}
EVENTS = {"url": "memory://"}
ALARMS = "alarms"
LONG = "30m"
"""The timeout of what is open until the test ends."""


@dataclass
class Site:
    """A served node."""

    rig: Rig
    served: Served

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.served.port}"

    def page(self, route: str = "") -> str:
        """The address of a page of the console."""
        return f"{self.url}/console/#/{route}"

    async def send(self, method: str, params: Any = None, *, device: str = DEVICE, **more: Any) -> str:  # noqa: ANN401 - JSON
        """The id of a new command that is open."""
        body = {"method": method, "params": params or {}, "timeout": LONG, **more}
        sent = await self.rig.http.post(f"/v1/devices/{device}/commands", json=body, headers=ASYNC)
        assert sent.status_code == 202, sent.text
        return str(sent.json()["id"])

    async def ended(self, method: str, **more: Any) -> str:
        """The id of a new command that has its outcome."""
        command = await self.send(method, **more)
        await self.until(command, final=True)
        return command

    async def until(self, command: str, *, final: bool) -> None:
        """Return once the command has ended, or has progress."""

        async def there() -> bool:
            read = (await self.rig.http.get(f"/v1/commands/{command}")).json()
            return read["finished_at"] is not None if final else read["progress"] is not None

        await eventually(there)

    async def progress(self, command: str, percent: float) -> None:
        """Have the device report progress."""
        payload = f'{{"id":"{command}","status":"running","progress":{{"percent":{percent}}}}}'
        _ = self.rig.device.client.publish(Publication(f"homing/{DEVICE}/response", payload.encode()))

    async def answer(self, command: str, raw: str) -> None:
        """Have the device answer with these JSON members."""
        self.rig.device.answer({"device": DEVICE, "id": command}, raw)
        await self.until(command, final=True)


@asynccontextmanager
async def site(**settings: Any) -> AsyncIterator[Site]:
    """A node on a free port."""
    async with running(**settings) as rig, serving(rig) as served:
        yield Site(rig, served)


async def furnished(there: Site) -> dict[str, str]:
    """One command of each kind, by name."""
    return {
        "ok": await there.ended("ok"),
        "refused": await there.ended("refuse"),
        "silent": await there.ended("cover_open", timeout="200ms"),
        "open": await there.send("flighttask_execute", {"flight_id": "f-1"}),
    }


async def has_events(there: Site) -> None:
    """Return once events are kept and queues can be declared."""

    probe = "/v1/queues/probe"
    body = {"routes": [{"database": "events", "topic": "probe"}]}

    async def can_be_declared() -> bool:
        return (await there.rig.http.put(probe, json=body)).is_success

    await eventually(can_be_declared)
    assert (await there.rig.http.delete(probe)).is_success


async def declare(there: Site, name: str = ALARMS, topic: str = "site/+/alarm", **more: Any) -> None:
    """Declare a queue."""
    body = {"routes": [{"database": "events", "topic": topic}], **more}
    declared = await there.rig.http.put(f"/v1/queues/{name}", json=body)
    assert declared.is_success, declared.text


async def publish(there: Site, *values: object, topic: str = "site/a/alarm") -> None:
    """Append events to the log."""
    found = await there.rig.http.post("/v1/events", json=[{"topic": topic, "data": one} for one in values])
    assert found.is_success, found.text


async def take(there: Site, count: int, consumer: str = "w1", name: str = ALARMS) -> list[str]:
    """Take so many events, and return their loans."""
    loans: list[str] = []
    while len(loans) < count:
        body = {"max": count - len(loans), "wait": "30s", "consumer": consumer}
        taken = await there.rig.http.post(f"/v1/queues/{name}/take", json=body)
        assert taken.is_success, taken.text
        loans += [one["loan"] for one in taken.json()["events"]]
    return loans


async def bury(there: Site, reasons: list[str], consumer: str = "w1", name: str = ALARMS) -> None:
    """Make dead letters of as many events that wait, and return once they are there."""
    loans = await take(there, len(reasons), consumer, name)
    dead = [{"loan": loan, "reason": reason} for loan, reason in zip(loans, reasons, strict=True)]
    settled = await there.rig.http.post(f"/v1/queues/{name}/settle", json={"dead": dead})
    assert settled.json()["over"] == [], settled.text

    async def buried() -> bool:
        found = await there.rig.http.get(f"/v1/queues/{name}/dead?limit=1000")
        return {one["reason"] for one in found.json()["letters"]} >= set(reasons)

    await eventually(buried)


async def furnished_queues(there: Site) -> None:
    """A queue at work, with a dead letter; one that nobody takes from; and one that is quiet."""
    await has_events(there)
    await declare(there, labels={"team": "ground"}, loan="1h", retry=["0s"])
    await declare(there, "archive", "site/#", order="device")
    await declare(there, "quiet", "nobody/speaks")
    await publish(there, {"number": 7, "text": "too hot"})
    await bury(there, ["no such dock"])
    await publish(there, *({"number": number} for number in range(4)))
    await take(there, 4)


async def looks(page: Page) -> None:
    """Have the page look at the overview, as at a node of the version before: it cannot follow it there."""
    body = json.dumps({"title": "Not found", "detail": "no such path", "status": 404})
    await page.route("**/v1/overview/events", lambda route: route.fulfill(status=404, body=body))


async def answers(page: Page, path: str, body: Any) -> None:  # noqa: ANN401 - JSON
    """Answer requests for this path with this body."""
    await page.route(path, lambda route: route.fulfill(body=json.dumps(body), content_type="application/json"))


async def asked_again(page: Page, button: str, does: str) -> None:
    """Press a button; see that No is at hand, and that nothing is done by it; then do it."""
    await page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog").filter(has=page.get_by_role("button", name=does))
    await expect(dialog.get_by_role("button", name="No", exact=True)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await page.get_by_role("button", name=button).click()
    await dialog.get_by_role("button", name=does).click()
    await expect(dialog).to_have_count(0)


async def tell_presence(there: Site, devices: list[str], *, online: bool = True) -> None:
    """Have devices say that they are there, or away, and return once that is known."""
    for one in devices:
        said = b'{"online": %b}' % (b"true" if online else b"false")
        there.rig.broker.publish(ReceivedMessage(f"homing/{one}/presence", said, qos=1))

    async def is_known() -> bool:
        state = (await there.rig.http.get(f"/v1/devices/{devices[-1]}/state")).json()
        return state["presence"] is not None and state["presence"]["online"] is online

    await eventually(is_known)


async def fleet_run(there: Site, devices: list[str], method: str, *states: str, **members: Any) -> str:
    """The id of a new run, once it is in one of these states."""
    command = {"method": method, "timeout": "1h", "hold": "1h"}
    body = {"targets": {"devices": devices}, "command": command, "order": "as_listed", **members}
    begun = await there.rig.http.post("/v1/fleet-runs", json=body)
    assert begun.status_code == 202, begun.text
    path = f"/v1/fleet-runs/{begun.json()['id']}"

    async def is_so() -> bool:
        found = (await there.rig.http.get(path)).json()
        return not states or found["state"] in states

    await eventually(is_so)
    return str(begun.json()["id"])


async def furnished_fleets(there: Site) -> dict[str, str]:
    """A run that waits between two waves, and one whose targets all failed; by name."""
    await has_events(there)
    docks = [f"dock-{number}" for number in range(1, 6)]
    await tell_presence(there, [*docks, "dock-8", "dock-9"])
    rule = {"share": "30%", "after": 3, "then": "pause"}
    paused = await fleet_run(there, docks, "ok", "paused", waves=[{"size": 2, "then": "wait"}, "rest"], stop=[rule])
    return {"paused": paused, "failed": await fleet_run(there, ["dock-8", "dock-9"], "refuse", "failed")}
