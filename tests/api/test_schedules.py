"""Schedules over HTTP: written, read, begun by a node in the name of who wrote them, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.access.changes import Put
from app.core.access.model import Kind, Principal
from app.core.schedules.schedule import decode_schedule, encode_schedule
from app.store.state import StateStore
from tests.api.rig import Rig, running
from tests.api.test_access import OF_SCHEDULES, Site, guarded
from tests.api.test_fleets import tell
from tests.waiting import eventually

ALL = "/v1/schedules"
NIGHTLY = f"{ALL}/nightly"
RUN = {"targets": {"devices": ["dock-1"]}, "command": {"method": "ok"}}
BODY: dict[str, Any] = {"cron": "* * * * *", "device": "dock-1", "command": {"method": "ok"}}
OF_RUN: dict[str, Any] = {"cron": "* * * * *", "run": RUN}
Json = dict[str, Any]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as rig:
        yield rig


def store_of(rig: Rig) -> StateStore:
    store: Any = rig.application.ports.commands.store
    found: StateStore = store
    return found


async def two_minutes_pass(rig: Rig) -> None:
    """Let the schedules believe that their occurrences of the last two minutes are not decided yet."""
    store = store_of(rig)
    for name, document in (await store.schedules.read()).documents.items():
        known = decode_schedule(document)
        earlier = replace(known, decided=known.decided - 120_000_000)
        assert await store.schedules.write(name, encode_schedule(earlier), document)


async def decided(rig: Rig, result: str, **call: Any) -> Json:
    """The schedule, when the node has decided an occurrence of it."""
    found: Json = {}

    async def is_so() -> bool:
        found.update((await rig.http.get(NIGHTLY, **call)).json())
        return [one["result"] for one in found["occurrences"]][:1] == [result]

    await eventually(is_so)
    return found


async def test_a_schedule_is_written_read_listed_and_deleted(rig: Rig) -> None:
    made = await rig.http.put(NIGHTLY, json={**BODY, "cron": "30 2 * * mon", "zone": "Europe/Berlin"})
    assert made.status_code == 201
    shown = made.json()
    assert (shown["name"], shown["zone"], shown["catch_up"], shown["overlap"]) == (
        *("nightly", "Europe/Berlin", "10m", "skip"),
    )
    assert len(shown["next"]) == 10
    assert (shown["paused"], shown["occurrences"], shown["run"]) == (None, [], None)
    read = await rig.http.get(NIGHTLY)
    assert (read.json(), read.headers["etag"]) == (shown, made.headers["etag"])
    assert (await rig.http.get(ALL)).json() == {"schedules": [shown]}
    stale = {"If-Match": '"other"'}
    for answer in (
        await rig.http.put(NIGHTLY, json=BODY, headers=stale),
        await rig.http.put(NIGHTLY, json=BODY, headers={"If-None-Match": "*"}),
        await rig.http.delete(NIGHTLY, headers=stale),
    ):
        assert answer.status_code == 412
    again = await rig.http.put(NIGHTLY, json={**BODY, "enabled": False}, headers={"If-Match": read.headers["etag"]})
    assert (again.status_code, again.json()["next"]) == (200, [])
    assert again.headers["etag"] != read.headers["etag"]
    gone = await rig.http.delete(NIGHTLY, headers={"If-Match": again.headers["etag"]})
    assert gone.status_code == 204
    for answer in (await rig.http.get(NIGHTLY), await rig.http.delete(NIGHTLY)):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:homing:problem:schedule-not-found")


async def test_a_command_is_sent_once_when_it_is_time(keeping: Rig) -> None:
    rig = keeping
    await tell(rig, ["dock-1"])
    now = await store_of(rig).now() // 60_000_000
    await rig.http.put(NIGHTLY, json={**BODY, "cron": f"{now % 60} {now // 60 % 24} * * *"})
    await two_minutes_pass(rig)
    (occurrence,) = (await decided(rig, "began"))["occurrences"]
    command: Json = {}

    async def has_ended() -> bool:
        command.update((await rig.http.get(f"/v1/commands/{occurrence['began']}")).json())
        return bool(command["state"] == "succeeded")

    await eventually(has_ended)
    assert (command["device_id"], command["method"]) == ("dock-1", "ok")
    await two_minutes_pass(rig)  # the same occurrence again, as if nobody had noted it

    async def is_decided_again() -> bool:
        found = [(one["result"], one["began"]) for one in (await rig.http.get(NIGHTLY)).json()["occurrences"]]
        return found == [("began", occurrence["began"])] * 2

    await eventually(is_decided_again)
    assert len(rig.device.received) == 1


async def test_a_run_begins_when_it_is_time(rig: Rig) -> None:
    made = await rig.http.put(NIGHTLY, json={"cron": "* * * * *", "run": RUN})
    assert made.status_code == 201, made.text
    await two_minutes_pass(rig)
    (occurrence,) = (await decided(rig, "began"))["occurrences"]
    run = (await rig.http.get(f"/v1/fleet-runs/{occurrence['began']}")).json()
    assert (run["total"], run["command"]["method"]) == (1, "ok")


@pytest.mark.parametrize("bodies", [(BODY, OF_RUN), (OF_RUN, BODY)], ids=["command to run", "run to command"])
async def test_one_that_is_written_again_as_something_else_goes_on(keeping: Rig, bodies: tuple[Json, Json]) -> None:
    await tell(keeping, ["dock-1"])
    for number, body in enumerate(bodies, 1):
        written = await keeping.http.put(NIGHTLY, json={**body, "overlap": "queue_one"})
        assert written.status_code == 201 if number == 1 else 200
        await two_minutes_pass(keeping)

        async def has_begun(number: int = number) -> bool:
            found = (await keeping.http.get(NIGHTLY)).json()["occurrences"]
            return [one["result"] for one in found] == ["began"] * number

        await eventually(has_begun)
    kinds = [one["began"].startswith("run-") for one in (await keeping.http.get(NIGHTLY)).json()["occurrences"]]
    assert sorted(kinds) == [False, True]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"cron": "* * * *"}, "cron", "allowed: five fields"),
        ({"zone": "Europe/Berln"}, "zone", "the nearest is Europe/Berlin"),
        ({"run": RUN}, "run", "not both"),
        ({"command": None, "device": None}, "run", "needs to be there"),
        ({"device": None}, "device", "goes with command"),
        ({"device": "#"}, "device_id", ""),
        ({"command": {"method": "ok", "notify": []}}, "command.notify", "is unknown"),
        ({"device": None, "command": None, "run": {**RUN, "start_at": "now"}}, "run.start_at", "cron says when"),
        ({"device": None, "command": None, "run": {"targets": {}}}, "command", "is missing"),
        ({"command": {"method": "ok", "params": "x" * 65_536}}, "command", "bytes, and allowed are 65536"),
        (
            {"device": None, "command": None, "run": {**RUN, "targets": {"devices": ["d" * 100] * 1000}}},
            "run",
            "allowed are 65536; name many devices by labels and patterns",
        ),
        ({"overlap": "wait"}, "body.overlap", "'skip', 'queue_one'"),
        ({"catch_up": "10"}, "catch_up", "is not a duration"),
        ({"catch_up": "25h"}, "catch_up", "allowed: 10s to 24h"),
        ({"catch_up": "2h"}, "catch_up", "might be sent twice; allowed: up to 1h"),
        ({"until": "soon"}, "until", "is no instant"),
        ({"until": "-10m"}, "until", "is no instant"),
        ({"jitter": "301s"}, "jitter", "allowed: "),
        ({"enabled": "yes"}, "body.enabled", ""),
    ],
)
async def test_a_wrong_schedule_is_refused_and_nothing_is_kept(rig: Rig, body: Json, field: str, says: str) -> None:
    given = {name: value for name, value in {**BODY, **body}.items() if value is not None}
    answer = await rig.http.put(NIGHTLY, json=given)
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["field"] == field
    assert says in fault["reason"]
    assert (await rig.http.get(ALL)).json() == {"schedules": []}


async def test_a_wrong_name_is_refused(rig: Rig) -> None:
    for answer in (await rig.http.put(f"{ALL}/Nightly", json=BODY), await rig.http.get(f"{ALL}/-a")):
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name")


class TestRights:
    @pytest.fixture
    async def site(self, tmp_path: Path) -> AsyncIterator[Site]:
        async with guarded(tmp_path) as site:
            yield site

    async def test_each_operation_needs_the_right(self, site: Site) -> None:
        body = {**BODY, "device": "drone-1"}
        made = await site.rig.http.put(NIGHTLY, json=body, headers=site.headers("operator"))
        assert (made.status_code, made.json()["by"], made.json()["tenant"]) == (201, "operator", "air")
        for operation in sorted(OF_SCHEDULES):
            method, _, path = operation.partition(" ")
            for who, status in ((None, 401), ("nobody", 403), ("viewer", 403), ("approver", 403)):
                call: Json = {"json": body} if method == "PUT" else {}
                url = path.format(name="nightly")
                answer = await site.rig.http.request(method, url, headers=site.headers(who), **call)
                assert answer.status_code == status, (operation, who)
        assert (await site.rig.http.get(NIGHTLY, headers=site.headers("neighbour"))).status_code == 404
        assert (await site.rig.http.get(ALL, headers=site.headers("neighbour"))).json() == {"schedules": []}
        for wrong in ({"device": "lamp-1"}, {"device": None, "command": None, "run": _run("lamp-1")}):
            given = {name: value for name, value in {**body, **wrong}.items() if value is not None}
            answer = await site.rig.http.put(NIGHTLY, json=given, headers=site.headers("operator"))
            assert answer.status_code in (403, 404), answer.text

    async def test_a_tenant_leaves_room_for_the_schedules_of_others(self, site: Site) -> None:
        site.rig.application.ports.fleets.schedules.most_of_tenant = 1

        async def put(who: str, name: str, device: str) -> tuple[int, Json]:
            body = {**BODY, "cron": "0 3 * * *", "device": device}
            answer = await site.rig.http.put(f"{ALL}/{name}", json=body, headers=site.headers(who))
            return answer.status_code, answer.json()

        assert (await put("operator", "a", "drone-1"))[0] == 201
        refused = await put("admin", "b", "drone-1")
        assert (refused[0], refused[1]["type"]) == (429, "urn:homing:problem:limit-reached")
        assert (await put("operator", "a", "drone-2"))[0] == 200, "one that is there can be replaced"
        assert (await put("neighbour", "b", "lamp-1"))[0] == 201
        assert [(await put("boss", name, "drone-1"))[0] for name in "ab"] == [201, 201]

    async def test_it_acts_as_who_wrote_it_and_pauses_itself_when_they_may_not_any_more(self, site: Site) -> None:
        mine: Json = {"headers": site.headers("operator")}
        await site.rig.http.put(NIGHTLY, json={"cron": "* * * * *", "run": _run("drone-1")}, **mine)
        await two_minutes_pass(site.rig)
        (occurrence,) = (await decided(site.rig, "began", **mine))["occurrences"]
        run = (await site.rig.http.get(f"/v1/fleet-runs/{occurrence['began']}", **mine)).json()
        assert (run["by"], run["tenant"]) == ("operator", "air")
        told: list[Json] = []

        async def are_told() -> bool:
            lines = (await site.rig.http.get("/v1/audit", headers=site.headers("boss"))).json()["lines"]
            told[:] = [one["line"] for one in lines if one["line"]["kind"] in ("fleet", "schedule")]
            return len(told) >= 2

        await eventually(are_told)
        put, begun = sorted(told, key=lambda one: str(one["kind"]), reverse=True)
        assert (put["schedule"], put["do"], put["who"]) == ("nightly", "put", "operator")
        assert (begun["run"], begun["who"], begun["agent"]) == (run["id"], "operator", "schedule nightly")
        await site.rig.http.post(f"/v1/fleet-runs/{run['id']}/abort", json={"open": "cancel"}, **mine)

        async def has_ended() -> bool:
            found = (await site.rig.http.get(f"/v1/fleet-runs/{run['id']}", **mine)).json()
            return bool(found["state"] == "aborted")

        await eventually(has_ended)
        gone = Principal(id="operator", tenant_id="air", kind=Kind.SERVICE, name="operator", disabled_us=1)
        await site.change(Put(gone))
        await two_minutes_pass(site.rig)
        theirs: Json = {"headers": site.headers("admin")}
        found = await decided(site.rig, "refused", **theirs)
        assert found["paused"].startswith("operator may not do this any more: ")
        assert found["next"] == []


def _run(device: str) -> Json:
    return {**RUN, "targets": {"devices": [device]}}
