"""Reading, listing and cancelling commands."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.commands.command import CommandState
from tests.api.rig import COMMANDS, Rig
from tests.api.test_send import ASYNC, problem

UNKNOWN = "042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"


async def test_a_command_reads_as_it_was_answered(rig: Rig) -> None:
    sent = await rig.send("ok")
    read = await rig.http.get(f"/v1/commands/{sent.json()['id']}")
    assert read.status_code == 200
    assert read.text == sent.text


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_command_is_404(rig: Rig, method: str) -> None:
    body = problem(await rig.http.request(method, f"/v1/commands/{UNKNOWN}"), 404, "command-not-found")
    assert body["command_id"] == UNKNOWN


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_is_no_command_id_is_422(rig: Rig, method: str) -> None:
    body = problem(await rig.http.request(method, "/v1/commands/7"), 422, "invalid-input")
    assert body["errors"][0]["field"] == "command_id"


@pytest.mark.parametrize(("method", "path"), [("DELETE", ""), ("POST", "/cancel")])
async def test_cancel_gives_the_cancelled_command(rig: Rig, method: str, path: str) -> None:
    await rig.send("silent", headers=ASYNC)
    response = await rig.http.request(method, rig.location + path)
    assert response.status_code == 200
    command = response.json()
    assert (command["state"], command["error"]["code"]) == ("cancelled", "cancelled")
    assert command["finished_at"] is not None
    assert (await rig.http.get(rig.location)).json() == command


async def test_what_has_an_outcome_cannot_be_cancelled(rig: Rig) -> None:
    command_id = (await rig.send("ok")).json()["id"]
    body = problem(await rig.http.delete(f"/v1/commands/{command_id}"), 409, "command-finished")
    assert (body["command_id"], body["state"]) == (command_id, "succeeded")


async def test_who_cancels_twice_is_told(rig: Rig) -> None:
    await rig.send("silent", headers=ASYNC)
    assert (await rig.http.post(f"{rig.location}/cancel")).status_code == 200
    problem(await rig.http.post(f"{rig.location}/cancel"), 409, "command-finished")


async def test_a_late_response_is_kept_with_a_readable_instant(rig: Rig) -> None:
    await rig.send("silent", headers=ASYNC)
    command = await rig.heard()
    await rig.http.delete(rig.location)
    rig.device.answer(command, '"status":"ok","result":{"received_at":12345}')
    late = (await rig.read_until(lambda command: command["late"] is not None))["late"]
    assert (late["state"], late["result"], late["error"]) == ("succeeded", {"received_at": 12345}, None)
    assert late["received_at"].startswith("20")
    assert late["received_at"].endswith("Z")


async def test_progress_shows_while_it_runs(rig: Rig) -> None:
    await rig.send("silent", headers=ASYNC)
    rig.device.answer(await rig.heard(), '"status":"running","progress":{"percent":40}')
    command = await rig.read_until(lambda command: command["state"] == "running")
    assert (command["progress"], command["last_progress"]) == ({"percent": 40}, None)
    assert command["finished_at"] is None
    await rig.http.delete(rig.location)
    command = (await rig.http.get(rig.location)).json()
    assert (command["progress"], command["last_progress"]) == (None, {"percent": 40})


async def test_a_device_lists_its_commands_where_one_looks_for_them(rig: Rig) -> None:
    sent = [(await rig.send("ok")).json()["id"] for _ in range(3)]
    await rig.http.post("/v1/devices/drone-2/commands", json={"method": "ok"})
    first = (await rig.http.get("/v1/devices/drone-1/commands", params={"limit": 2, "state": "succeeded"})).json()
    assert [one["id"] for one in first["commands"]] == [sent[2], sent[1]]
    rest = (await rig.http.get("/v1/devices/drone-1/commands", params={"cursor": first["cursor"]})).json()
    assert ([one["id"] for one in rest["commands"]], rest["cursor"]) == ([sent[0]], None)
    refused = await rig.http.get("/v1/devices/drone-1/commands", params={"device": "drone-2"})
    assert refused.status_code == 422
    assert (
        refused.json()["detail"]
        == "device: is unknown; allowed: state, method, profile, since, until, limit, cursor, idempotency_key"
    )


async def ids(rig: Rig, query: str) -> tuple[list[str], str | None]:
    response = await rig.http.get(f"/v1/commands{query}")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    assert list(body) == ["commands", "cursor"]
    return [command["id"] for command in body["commands"]], body["cursor"]


async def test_commands_are_listed_newest_first_page_by_page(rig: Rig) -> None:
    assert await ids(rig, "") == ([], None)
    sent = [(await rig.send("ok")).json()["id"] for _ in range(5)]
    assert await ids(rig, "") == (sent[::-1], None)
    seen: list[str] = []
    query, pages = "?limit=2", 0
    while True:
        found, cursor = await ids(rig, query)
        seen += found
        pages += 1
        if cursor is None:
            break
        query = f"?limit=2&cursor={cursor}"
    assert seen == sent[::-1]
    assert pages == 3


async def test_commands_are_filtered(rig: Rig) -> None:
    failed = (await rig.send("refuse")).json()["id"]
    await rig.send("ok")
    other = await rig.http.post("/v1/devices/other:2/commands", json={"method": "ok"})
    assert await ids(rig, "?state=failed") == ([failed], None)
    assert await ids(rig, "?device=other:2") == ([other.json()["id"]], None)
    assert await ids(rig, "?device=other:2&state=failed") == ([], None)
    assert await ids(rig, "?device=nobody") == ([], None)


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("state=done", "state", f"'done' is none; allowed: {', '.join(CommandState)}"),
        ("limit=0", "limit", "allowed: 1 to 200"),
        ("limit=201", "limit", "allowed: 1 to 200"),
        ("limit=-1", "limit", "allowed: 1 to 200"),
        ("limit=%C2%B2", "limit", "allowed: 1 to 200"),
        ("limit=" + "9" * 5000, "limit", "allowed: 1 to 200"),
        ("limit=", "limit", "allowed: 1 to 200"),
        ("cursor=x", "cursor", "leave it out for the first page"),
        ("device=a%2Bb", "device_id", "'+' at index 1 is not allowed"),
        ("device=", "device_id", "is empty"),
        ("devise=a", "devise", "is unknown; allowed: device, state, method, profile, since, until, limit, cursor"),
        ("state=failed&state=sent", "state", "is given twice"),
    ],
)
async def test_a_wrong_filter_is_named(rig: Rig, query: str, field: str, says: str) -> None:
    (fault,) = problem(await rig.http.get(f"/v1/commands?{query}"), 422, "invalid-input")["errors"]
    assert fault["field"] == field
    assert says in fault["reason"]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", f"/{UNKNOWN}"), ("DELETE", f"/{UNKNOWN}")])
async def test_a_store_that_is_away_gives_503(rig: Rig, method: str, path: str) -> None:
    rig.store.away = True
    response = await rig.http.request(method, f"/v1/commands{path}")
    problem(response, 503, "store-unavailable")
    assert response.headers["retry-after"] == "1"


async def test_a_draining_node_still_reads(rig: Rig) -> None:
    command_id = (await rig.send("ok")).json()["id"]
    await rig.node.stop()
    assert (await rig.http.get(f"/v1/commands/{command_id}")).status_code == 200
    problem(await rig.http.delete(f"/v1/commands/{command_id}"), 503, "node-draining")


async def test_lists_are_narrowed_by_method_profile_and_time(rig: Rig) -> None:
    for method in ("ok", "refuse", "ok"):
        await rig.send(method)
    newest = (await rig.http.get("/v1/commands")).json()["commands"]

    async def listed(**query: str) -> list[str]:
        found = {
            path: [one["id"] for one in (await rig.http.get(path, params=query)).json()["commands"]]
            for path in ("/v1/commands", COMMANDS)
        }
        assert found["/v1/commands"] == found[COMMANDS]
        return found[COMMANDS]

    ids = [one["id"] for one in newest]
    assert await listed(method="ref*") == [ids[1]]
    assert await listed(method="ok", profile="homing", since="-1h") == [ids[0], ids[2]]
    assert await listed(profile="dji*") == []
    assert await listed(until="-1h") == []
    assert await listed(since="2100-01-01T00:00:00Z") == []
    for wrong, field in (
        ("method=a?", "method"),
        ("profile=X", "profile"),
        ("since=soon", "since"),
        ("until=x", "until"),
    ):
        refused = problem(await rig.http.get(f"/v1/commands?{wrong}"), 422, "invalid-input")
        assert refused["errors"][0]["field"] == field
