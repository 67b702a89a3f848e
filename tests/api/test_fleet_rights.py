"""The rights to begin, see and steer a fleet run, and the devices that are its targets for each caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.api.representation import instant
from tests.api.test_access import OF_FLEETS, Site, guarded
from tests.api.test_fleets import RUNS, Json
from tests.api.test_two_persons import person
from tests.waiting import eventually

OF_DRONE_2 = ["allow fleet *:* on *", "allow read *:* on drone-2"]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


async def test_labels_choose_among_the_devices_that_the_caller_may_read(site: Site) -> None:
    for number in range(3):
        await site.rig.http.put(
            f"/v1/devices/drone-{number}",
            json={"labels": {"site": "north" if number else "south"}},
            headers=site.headers("admin"),
        )
    body = {"targets": {"labels": {"site": "north"}}, "command": {"method": "ok"}, "order": "as_listed"}
    dry = await site.rig.http.post(RUNS, json=body, params={"dry_run": "true"}, headers=site.headers("operator"))
    assert dry.json()["devices"] == ["drone-1", "drone-2"]
    body["targets"] = {"all": [{"devices": ["drone-*"]}, {"not": {"labels": {"site": "north"}}}]}
    dry = await site.rig.http.post(RUNS, json=body, params={"dry_run": "true"}, headers=site.headers("operator"))
    assert dry.json()["devices"] == ["drone-0"]
    body["targets"] = {"labels": {"site": "nowhere"}}
    none = await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))
    assert (none.status_code, none.json()["type"]) == (422, "urn:homing:problem:no-targets")


async def test_values_of_a_label_take_turns_and_few_of_one_are_in_flight(site: Site) -> None:
    for number in range(5):
        labels = {"site": "north" if number < 3 else "south"}
        await site.rig.http.put(f"/v1/devices/drone-{number}", json={"labels": labels}, headers=site.headers("admin"))
    body = {
        "targets": {"devices": ["drone-*"]},
        "command": {"method": "silent", "timeout": "60s"},
        "order": "as_listed",
        "spread": "site",
        "per": [{"label": "site", "most": 1}],
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))).json()
    url = f"{RUNS}/{run['id']}"
    page = (await site.rig.http.get(f"{url}/targets", headers=site.headers("operator"))).json()["targets"]
    assert [one["device_id"] for one in page] == ["drone-0", "drone-3", "drone-1", "drone-4", "drone-2"]

    async def are_handed() -> bool:
        found = (await site.rig.http.get(url, headers=site.headers("operator"))).json()
        return bool(found["counts"].get("handed") == 2)

    await eventually(are_handed)
    page = (await site.rig.http.get(f"{url}/targets", headers=site.headers("operator"))).json()["targets"]
    assert [one["device_id"] for one in page if one["state"] == "handed"] == ["drone-0", "drone-3"]


async def test_a_second_person_approves_the_next_wave(site: Site) -> None:
    for name, roles in (
        ("anna", ["operator", "approver"]),
        ("ben", ["operator", "approver"]),
        ("eve", ["operator"]),
    ):
        await person(site, name, *roles)
    body = {
        "targets": {"devices": ["drone-0", "drone-1"]},
        "command": {"method": "silent", "hold": "1s", "timeout": "1s"},
        "waves": [{"size": 1, "then": "approve"}],
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("anna"))).json()
    url = f"{RUNS}/{run['id']}"

    async def becomes(state: str) -> None:
        async def is_so() -> bool:
            return bool((await site.rig.http.get(url, headers=site.headers("anna"))).json()["state"] == state)

        await eventually(is_so)

    await becomes("paused")
    explained = (await site.rig.http.get(f"{url}/explain", headers=site.headers("eve"))).json()
    assert "a second person has to approve the next one" in explained["said"]
    for who, why in (("anna", "you have asked for it yourself"), ("eve", "approve")):
        refused = await site.rig.http.post(f"{url}/resume", json={"forgive": True}, headers=site.headers(who))
        assert refused.status_code == 403, who
        assert why in refused.json()["detail"]
    assert (await site.rig.http.get(url, headers=site.headers("anna"))).json()["counts"]["waiting"] == 1
    answer = await site.rig.http.post(f"{url}/resume", headers=site.headers("ben"))
    assert answer.status_code == 200, answer.text
    assert "ben" in [one["by"] for one in answer.json()["steps"]]
    await becomes("failed")


async def test_who_may_not_send_to_all_of_them_begins_nothing(site: Site) -> None:
    body = {"targets": {"devices": ["drone-1", "lamp-1", "lamp-2"]}, "command": {"method": "ok"}}
    refused = await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))
    assert refused.status_code == 403
    assert (
        "the caller may not send ok to 2 of 3 targets: lamp-1, lamp-2; nothing was begun" in (refused.json()["detail"])
    )
    assert (await site.rig.http.get(RUNS, headers=site.headers("operator"))).json()["runs"] == []
    assert (await site.rig.http.post(RUNS, json=body, headers=site.headers("viewer"))).status_code == 403


async def test_each_operation_needs_the_right(site: Site) -> None:
    body = {"targets": {"devices": ["drone-1"]}, "command": {"method": "silent"}}
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))).json()
    for operation in sorted(OF_FLEETS):
        method, _, path = operation.partition(" ")
        url = path.format(run_id=run["id"])
        for who, status in ((None, 401), ("nobody", 403), ("viewer", 403), ("approver", 403)):
            answer = await site.rig.http.request(method, url, json=body, headers=site.headers(who))
            assert answer.status_code == status, (operation, who)
        if url != RUNS:
            answer = await site.rig.http.request(method, url, headers=site.headers("neighbour"))
            assert answer.status_code == 404, operation
    assert (await site.rig.http.get(f"{RUNS}/{run['id']}", headers=site.headers("operator"))).status_code == 200
    told: list[Json] = []

    async def are_told() -> bool:
        lines = (await site.rig.http.get("/v1/audit", headers=site.headers("boss"))).json()["lines"]
        told[:] = [one["line"] for one in lines if one["line"]["kind"] in ("fleet", "command")]
        return len(told) >= 2

    await eventually(are_told)
    (begun,) = [one for one in told if one["kind"] == "fleet"]
    (sent,) = [one for one in told if one["kind"] == "command"]
    assert (begun["run"], begun["do"], begun["method"]) == (run["id"], "begin", "silent")
    assert (sent["device"], sent["who"], sent["agent"]) == ("drone-1", run["by"], run["id"])


async def test_what_failed_is_explained_of_targets_that_the_caller_may_read(site: Site) -> None:
    body = {
        "targets": {"devices": ["drone-1", "drone-2"]},
        "command": {"method": "silent", "hold": "1s", "timeout": "1s"},
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))).json()
    url = f"{RUNS}/{run['id']}"

    async def has_ended() -> bool:
        return bool((await site.rig.http.get(url, headers=site.headers("operator"))).json()["state"] == "failed")

    await eventually(has_ended)
    await site.add("narrow", "operator", narrow=OF_DRONE_2)
    for who, devices in (("operator", {"drone-1", "drone-2"}), ("narrow", {"drone-2"})):
        explained = (await site.rig.http.get(f"{url}/explain", headers=site.headers(who))).json()
        listed = (await site.rig.http.get(f"{url}/targets", headers=site.headers(who))).json()["targets"]
        assert {device for one in explained["failures"] for device in one["devices"]} == devices
        assert {one["device_id"] for one in listed} == devices


async def test_who_repeats_a_run_is_told_of_no_device_that_they_may_not_know_of(site: Site) -> None:
    await site.add("narrow", "operator", narrow=OF_DRONE_2)
    body = {
        "targets": {"devices": ["drone-1", "drone-2", "drone-3"]},
        "command": {"method": "silent"},
        "in_flight": 1,
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))).json()
    aborted = await site.rig.http.post(f"{RUNS}/{run['id']}/abort", headers=site.headers("operator"))
    count = aborted.json()["counts"]["skipped"]
    refused = await site.rig.http.post(
        f"{RUNS}/{run['id']}/retry", json={"of": ["skipped"]}, headers=site.headers("narrow")
    )
    assert refused.status_code == 403
    said = refused.json()["detail"]
    assert f"may not send silent to {count} of {count} targets" in said
    assert "drone-1" not in said
    assert "drone-3" not in said


async def test_who_approves_a_wave_is_told_of_no_device_that_they_may_not_know_of(site: Site) -> None:
    await person(site, "anna", "operator", "approver")
    await site.add("narrow", "operator", "approver", narrow=[*OF_DRONE_2, "allow approve *:* on drone-2"])
    body = {
        "targets": {"devices": ["drone-1", "drone-2"]},
        "command": {"method": "silent", "hold": "1s", "timeout": "1s"},
        "order": "as_listed",
        "waves": [{"size": 1, "then": "approve"}],
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("anna"))).json()
    url = f"{RUNS}/{run['id']}"

    async def is_paused() -> bool:
        return bool((await site.rig.http.get(url, headers=site.headers("anna"))).json()["state"] == "paused")

    await eventually(is_paused)
    refused = await site.rig.http.post(f"{url}/resume", headers=site.headers("narrow"))
    assert refused.status_code == 403
    assert "some are devices that they may not know of" in refused.json()["detail"]
    assert "drone-1" not in refused.json()["detail"]


async def test_a_run_of_another_tenant_is_as_one_that_never_was(site: Site) -> None:
    body = {"targets": {"devices": ["drone-1"]}, "command": {"method": "ok"}}
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("operator"))).json()
    assert (run["tenant"], bool(run["by"])) == ("air", True)
    for who, status in (("neighbour", 404), ("boss", 200), ("admin", 200)):
        answer = await site.rig.http.get(f"{RUNS}/{run['id']}", headers=site.headers(who))
        assert answer.status_code == status, who
    assert (await site.rig.http.get(RUNS, headers=site.headers("neighbour"))).json()["runs"] == []


async def test_a_tenant_leaves_room_for_the_runs_of_others(site: Site) -> None:
    site.rig.application.ports.fleets.administration.most_open_of_tenant = 1
    later: Json = {"start_at": instant(site.rig.application.ports.node.now_us() + 3_600_000_000)}

    async def begin(who: str, device: str, key: str = "") -> tuple[int, Json]:
        body = {"targets": {"devices": [device]}, "command": {"method": "ok"}, **later}
        headers = site.headers(who) | ({"idempotency-key": key} if key else {})
        answer = await site.rig.http.post(RUNS, json=body, headers=headers)
        return answer.status_code, answer.json()

    status, run = await begin("operator", "drone-1", "first")
    assert status == 202, run
    refused = await begin("admin", "drone-1")
    assert (refused[0], refused[1]["type"]) == (429, "urn:homing:problem:limit-reached")
    assert "tenant 'air' has 1 fleet runs that have not ended" in refused[1]["detail"]
    assert (await begin("operator", "drone-1", "first"))[1]["id"] == run["id"], "a call that is repeated joins its run"
    assert (await begin("neighbour", "lamp-1"))[0] == 202
    assert [(await begin("boss", "drone-1"))[0] for _ in range(2)] == [202, 202], "who operates Homing has no tenant"
    await site.rig.http.post(f"{RUNS}/{run['id']}/abort", headers=site.headers("operator"))
    assert (await begin("operator", "drone-1"))[0] == 202
