"""Devices whose names have blanks and slashes: one part of a path, escaped as the URL standard says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.rig import Rig, running
from tests.api.test_bad_input import raw_call
from tests.api.test_send import ASYNC, problem
from tests.waiting import eventually

LAMP = "living%20room%2Flamp%201"
BODY: dict[str, Any] = {"method": "set", "params": {"state": "ON"}, "profile": "zigbee2mqtt"}


@pytest.fixture
async def zigbee() -> AsyncIterator[Rig]:
    async with running(profiles={"shipped": "homing,zigbee2mqtt"}) as one:
        yield one


@pytest.mark.parametrize("written", [LAMP, LAMP.replace("%2F", "%2f"), "living%2520room%252Flamp%25201"])
async def test_a_command_reaches_a_device_with_a_blank_and_a_slash(zigbee: Rig, written: str) -> None:
    sent = await zigbee.http.post(f"/v1/devices/{written}/commands", json=BODY, headers=ASYNC)
    assert (sent.status_code, sent.json()["device_id"]) == (202, LAMP), sent.text
    for path in (f"/v1/devices/{written}/commands", f"/v1/commands?device={written}"):
        listed = (await zigbee.http.get(path)).json()["commands"]
        assert [one["id"] for one in listed] == [sent.json()["id"]]


@pytest.mark.parametrize(
    "written", ["a%2Bb", "a%00b", "%2E%2E", "a%2F..%2Fb", "a%2F%2Fb", "50%25", "%FF", "a%0Ab", "%2F"]
)
async def test_what_no_device_is_called_is_422(rig: Rig, written: str) -> None:
    refused = problem(await rig.http.post(f"/v1/devices/{written}/commands", json=BODY), 422, "invalid-input")
    assert refused["errors"][0]["field"] == "device_id"


async def test_an_escaped_slash_leads_to_no_other_route(rig: Rig) -> None:
    assert (await rig.http.get("/v1/devices/a%2Fcommands")).status_code == 404  # there is no directory
    assert (await rig.http.get("/v1/devices/a/b/commands")).status_code == 404
    assert await raw_call(rig, "POST", "/v1/devices/a/b/commands") == 404


async def test_a_profile_with_one_level_for_the_device_refuses_a_slash(rig: Rig) -> None:
    refused = problem(await rig.http.post("/v1/devices/a%2Fb/commands", json={"method": "ok"}), 422, "invalid-input")
    assert "'/' at index 1 is not allowed in a level of a topic" in refused["detail"]


async def test_a_blank_is_fine_in_any_profile(rig: Rig) -> None:
    sent = await rig.http.post("/v1/devices/dock%201/commands", json={"method": "ok"})
    assert (sent.status_code, sent.json()["state"], sent.json()["device_id"]) == (200, "succeeded", "dock%201")
    await eventually(lambda: bool(rig.device.received))
    assert rig.device.received[0]["device"] == "dock 1"
