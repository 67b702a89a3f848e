"""Events that devices say unasked, from the broker to whoever reads them over HTTP."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.events.quota import of_all
from app.core.messages import ReceivedMessage
from tests.api.rig import Rig, running
from tests.waiting import eventually

JSON = {"content-type": "application/json"}
TOPIC = "homing/lamp-1/event"


@pytest.fixture(params=["memory://", "rocks://"])
async def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    url = request.param if request.param == "memory://" else f"rocks://{tmp_path}/events"
    async with running(events={"url": url}) as rig:
        await eventually(lambda: is_ready(rig))
        yield rig


async def is_ready(rig: Rig) -> bool:
    """True if what devices say is heard, and kept."""
    return (await rig.http.get("/readyz")).status_code == 200 and rig.broker.has_session("homing-intake")


def say(rig: Rig, topic: str, value: object, *, qos: int = 1, retain: bool = False) -> None:
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    rig.broker.publish(ReceivedMessage(topic, payload, qos=qos, retain=retain))


async def read(rig: Rig, **parameters: Any) -> list[dict[str, Any]]:
    answer = await rig.http.get("/v1/events", params=parameters)
    assert answer.status_code == 200, answer.text
    events: list[dict[str, Any]] = answer.json()["events"]
    return events


async def appended(rig: Rig, count: int) -> None:
    await eventually(lambda: rig.counters["events.appended"] >= count)


async def test_what_a_device_says_is_read_with_what_its_profile_knows_of_it(keeping: Rig) -> None:
    say(keeping, TOPIC, {"type": "overheated", "id": "e-17", "celsius": 91.50})
    say(keeping, "thing/product/SN1/osd", b"\xff no JSON")
    await appended(keeping, 1)
    (event,) = await read(keeping, topic="homing/+/event")
    assert event.pop("position") > 1_700_000_000_000_000
    assert event.pop("at").endswith("Z")
    assert event == {
        "topic": TOPIC,
        "device_id": "lamp-1",
        "kind": "homing:event",
        "id": "e-17",
        "data": {"type": "overheated", "id": "e-17", "celsius": 91.5},
    }


async def test_events_of_a_profile_are_in_its_database(keeping: Rig) -> None:
    say(keeping, "thing/product/SN1/osd", {"data": {"height": 3}})
    await appended(keeping, 2)  # and that it is there
    assert await read(keeping, database="events") == []
    assert [one["kind"] for one in await read(keeping, database="telemetry")] == ["dji:osd"]


@pytest.mark.parametrize(
    ("place", "status", "kind", "says"),
    [
        ("events/0/17", 404, "event-not-found", "shard events.0 has no event at position 17"),
        ("events/200/17", 404, "event-not-found", "database 'events' has no shard 200"),
        ("nowhere/0/17", 404, "database-not-found", "there are events, telemetry"),
        ("events/256/17", 422, "invalid-input", "256"),
        ("events/-1/17", 422, "invalid-input", "shard"),
        ("events/0/0", 422, "invalid-input", "position"),
        ("events/0/99999999999999999999", 422, "invalid-input", "position"),
        ("events/0/1e3", 422, "invalid-input", "position"),
        ("Events/0/17", 422, "invalid-input", "database"),
        ("events/0/17?topic=a", 422, "invalid-input", "topic"),
    ],
)
async def test_places_where_no_event_is(keeping: Rig, place: str, status: int, kind: str, says: str) -> None:
    answer = await keeping.http.get(f"/v1/events/{place}")
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:homing:problem:{kind}")
    assert says in answer.text


async def test_without_a_database_all_of_them_are_read_as_one(keeping: Rig) -> None:
    osd, event = "thing/product/SN1/osd", "thing/product/SN1/events"
    for number in range(4):
        say(keeping, osd, {"data": {"n": number}})
        say(keeping, event, {"data": {"n": number}})
    await appended(keeping, 9)  # and that it is there
    page = (await keeping.http.get("/v1/events", params={"topic": "thing/product/+/osd"})).json()
    assert [one["data"]["data"]["n"] for one in page["events"]] == [0, 1, 2, 3]
    assert page["databases"] == ["events", "telemetry"]
    topics, cursor = [], ""
    while True:
        query = f"topic=thing/product/SN1/%2B&limit=3{cursor}"
        page = (await keeping.http.get(f"/v1/events?{query}")).json()
        topics += [(one["position"], one["topic"]) for one in page["events"]]
        cursor = f"&cursor={page['cursor']}"
        if not page["more"]:
            break
    assert [topic for _, topic in topics].count(osd) == 4
    assert len(topics) == 8
    assert topics == sorted(topics)
    listed = (await keeping.http.get("/v1/topics?topic=thing/%23&limit=1")).json()
    rest = (await keeping.http.get("/v1/topics", params={"topic": "thing/#", "cursor": listed["cursor"]})).json()
    assert [one["topic"] for one in (*listed["topics"], *rest["topics"])] == [event, osd]
    assert rest["cursor"] is None


async def test_a_last_value_is_found_in_whichever_database_it_is_and_changed_there(keeping: Rig) -> None:
    osd = "thing/product/SN1/osd"
    say(keeping, osd, {"data": {"height": 3}})
    await appended(keeping, 2)
    found = await keeping.http.get(f"/v1/state/{osd}")
    assert found.json()["data"] == {"data": {"height": 3}}
    assert (await keeping.http.get(f"/v1/state/{osd}?database=events")).status_code == 404
    tag = {"If-Match": found.headers["etag"]}
    assert (await keeping.http.put(f"/v1/state/{osd}", json=4, headers=tag)).status_code == 200
    assert (await keeping.http.get(f"/v1/state/{osd}?database=telemetry")).json()["data"] == 4
    other = "thing/product/SN2/osd"  # which has none yet: its profile says where
    assert (await keeping.http.put(f"/v1/state/{other}", json=5)).status_code == 200
    assert (await keeping.http.get(f"/v1/state/{other}?database=telemetry")).json()["data"] == 5
    body = {"if": [{"topic": other, "absent": True}], "write": [{"topic": other, "data": 6}]}
    assert (await keeping.http.post("/v1/transactions", json=body)).status_code == 409


async def test_a_plus_that_became_a_blank_is_not_read_in_silence(keeping: Rig) -> None:
    for path in ("/v1/events", "/v1/topics", "/v1/events/stream"):
        answer = await keeping.http.get(f"{path}?topic=homing/+/event")
        assert answer.status_code == 422
        assert "did you mean 'homing/%2B/event'? + in a URL is one" in answer.text
    assert (await keeping.http.get("/v1/events?topic=living room/%2B/event")).status_code == 200


async def test_a_cursor_is_of_its_filter_and_databases(keeping: Rig) -> None:
    page = (await keeping.http.get("/v1/events?topic=homing/%2B/event&database=telemetry")).json()
    for query, sentence in (
        ("topic=homing/%2B/event&database=events", "is of database telemetry; allowed: one of events"),
        ("topic=homing/%23&database=telemetry", "is of another topic filter"),
        ("database=telemetry", "is of another topic filter"),
    ):
        answer = await keeping.http.get(f"/v1/events?{query}&cursor={page['cursor']}")
        assert (answer.status_code, sentence in answer.text) == (422, True), answer.text
        stream = await keeping.http.get(f"/v1/events/stream?{query}", headers={"Last-Event-ID": page["cursor"]})
        assert (stream.status_code, sentence in stream.text) == (422, True), stream.text


async def test_pages_go_on_where_the_last_one_ended_and_nothing_is_lost_in_between(keeping: Rig) -> None:
    for number in range(25):
        say(keeping, f"homing/lamp-{number % 7}/event", {"n": number})
    await appended(keeping, 25)
    found: list[int] = []
    cursor, more = None, True
    while more:
        parameters = {"limit": "4"} | ({"cursor": cursor} if cursor else {})
        page = (await keeping.http.get("/v1/events", params=parameters)).json()
        found += [one["data"]["n"] for one in page["events"]]
        cursor, more = page["cursor"], page["more"]
    assert sorted(found) == list(range(25))
    say(keeping, TOPIC, {"n": 25})
    await appended(keeping, 26)
    assert [one["data"]["n"] for one in await read(keeping, cursor=cursor)] == [25]


async def test_events_are_read_by_the_time_they_came(keeping: Rig) -> None:
    say(keeping, TOPIC, {"n": 1})
    await appended(keeping, 1)
    (first,) = await read(keeping)
    say(keeping, TOPIC, {"n": 2})
    await appended(keeping, 2)
    assert [one["data"]["n"] for one in await read(keeping, **{"from": "-1h"})] == [1, 2]
    assert await read(keeping, to="-1h") == []
    assert await read(keeping, **{"from": "2100-01-01T00:00:00Z"}) == []
    assert [one["data"]["n"] for one in await read(keeping, since="-1h", until=first["at"])] == [
        one["data"]["n"] for one in await read(keeping, **{"from": "-1h", "to": first["at"]})
    ]
    assert await read(keeping, since="2100-01-01T00:00:00Z") == []
    assert [one["data"]["n"] for one in await read(keeping, **{"from": first["at"]})] == [1, 2]


async def test_what_was_said_before_is_settled_and_counted(keeping: Rig) -> None:
    say(keeping, TOPIC, {"n": 1}, retain=True)
    say(keeping, TOPIC, {"n": 2})
    await appended(keeping, 1)
    await eventually(lambda: keeping.broker.holds_for("homing-intake") == 0)  # nothing of it is under way any more
    assert [one["data"]["n"] for one in await read(keeping)] == [2]
    assert keeping.counters["drop.retained_event"] == 1


async def test_what_nobody_can_read_is_kept_as_it_came(keeping: Rig) -> None:
    said = [b"no JSON", b'{"n": 1, "n": 2}', b""]
    for one in said:
        say(keeping, TOPIC, one)
    await appended(keeping, len(said))
    found = await read(keeping)
    assert [b64decode(one["data_base64"]) for one in found] == said
    assert {(one["device_id"], one["kind"], one["id"]) for one in found} == {("lamp-1", "homing:event", None)}
    assert (await keeping.http.get(f"/v1/state/{TOPIC}")).status_code == 404, "an empty one takes the last value away"


async def test_the_last_values_of_a_device_are_read_together(keeping: Rig) -> None:
    for topic in ("osd", "state", "events"):
        say(keeping, f"thing/product/SN1/{topic}", {"topic": topic, "method": "x"})
    say(keeping, "thing/product/SN2/osd", {})
    await appended(keeping, 6)  # two of them say that a device has come
    state = (await keeping.http.get("/v1/devices/SN1/state")).json()
    assert [one["topic"].rpartition("/")[2] for one in state["values"]] == ["events", "osd", "state"]
    topics = (await keeping.http.get("/v1/topics", params={"database": "telemetry", "limit": 2})).json()
    assert [one["topic"] for one in topics["topics"]] == ["thing/product/SN1/osd", "thing/product/SN1/state"]
    behind = {"database": "telemetry", "after": topics["cursor"], "limit": 2}
    rest = (await keeping.http.get("/v1/topics", params=behind)).json()
    assert ([one["topic"] for one in rest["topics"]], rest["cursor"]) == (["thing/product/SN2/osd"], None)


async def test_a_name_that_some_profile_cannot_have_has_no_topic_there(keeping: Rig) -> None:
    """`homing` and `dji` have ids of one level."""
    answer = await keeping.http.get("/v1/devices/living%20room%2Flamp%201/state")
    assert (answer.status_code, answer.json()["values"]) == (200, [])
    assert answer.json()["device_id"] == "living%20room%2Flamp%201"


async def test_it_is_known_who_is_there_and_changes_are_events(keeping: Rig) -> None:
    async def presence() -> dict[str, Any]:
        state: dict[str, Any] = (await keeping.http.get("/v1/devices/lamp-1/state")).json()
        known: dict[str, Any] = state["presence"]
        return known

    async def is_online(online: bool) -> bool:  # noqa: FBT001 - what is asked
        return (await presence())["online"] is online

    assert await presence() == {"online": None, "since": None, "last_seen": None}
    for online in (True, True, False):
        say(keeping, "homing/lamp-1/presence", {"online": online})
    await eventually(lambda: is_online(online=False))
    changes = await read(keeping, topic="$homing/devices/+/presence")
    assert [(one["device_id"], one["data"]["online"]) for one in changes] == [("lamp-1", True), ("lamp-1", False)]
    assert await read(keeping) == [], "# does not mean what Homing itself says"
    say(keeping, "homing/lamp-1/presence", {"online": True}, retain=True)
    await eventually(lambda: is_online(online=True))
    say(keeping, TOPIC, {"n": 1})
    await eventually(lambda: read(keeping))
    (event,) = await read(keeping)
    assert (await presence())["last_seen"] == event["at"]
    await eventually(lambda: keeping.broker.holds_for("homing-intake") == 0)


@pytest.mark.parametrize("topic", ["$homing/devices/SN1/presence", "$SYS/broker/uptime", "$homing/x"])
async def test_nobody_but_homing_says_anything_on_its_topics(keeping: Rig, topic: str) -> None:
    said = [{"topic": topic, "data": {"online": False, "said": True, "since": 1}}]
    for method, path, body in (
        ("PUT", f"/v1/state/{topic}", said[0]["data"]),
        ("POST", "/v1/events", said),
        ("POST", "/v1/transactions", {"write": said}),
        ("POST", "/v1/transactions", {"delete": [topic]}),
    ):
        answer = await keeping.http.request(method, path, json=body)
        assert answer.status_code == 422, answer.text
        assert "where nobody says anything but Homing itself" in answer.text
    assert await read(keeping, topic=topic) == []


async def test_structures_and_databases_are_shown(keeping: Rig) -> None:
    say(keeping, TOPIC, {})
    await appended(keeping, 1)
    streams = (await keeping.http.get("/v1/streams")).json()
    assert {"structure": "homing/+/event", "database": "events"} in streams["streams"]
    assert {one["database"] for one in streams["streams"]} == {"events", "telemetry"}
    one = (await keeping.http.get("/v1/streams?database=events")).json()
    assert {one["database"] for one in one["streams"]} == {"events"}
    databases = (await keeping.http.get("/v1/databases")).json()["databases"]
    assert [(one["name"], one["retention"], one["shards"]) for one in databases] == [
        ("events", "720h", 4),
        ("telemetry", "24h", 4),
    ]
    (generation,) = databases[0]["generations"]
    assert (generation["number"], generation["state"], generation["events"]) == (1, "current", 1)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("GET", "/v1/events?topic=a/b%2B", None, 422, "topic: level 2: '+' must be a whole level"),
        ("GET", "/v1/events?topic=$share/g/a", None, 422, "is a shared subscription"),
        (
            "GET",
            "/v1/events?database=nowhere",
            None,
            404,
            "there is no database 'nowhere'; there are events, telemetry",
        ),
        ("GET", "/v1/events?database=A", None, 422, "'A' is no name of one; allowed: a-z"),
        ("GET", "/v1/events?cursor=7", None, 422, "cursor: '7' is none; allowed: what an answer of this API gave"),
        ("GET", "/v1/events?cursor=1-0", None, 422, "is of a database with 1 shards"),
        ("GET", "/v1/events?from=yesterday", None, 422, "from: 'yesterday' is no instant; allowed: RFC 3339"),
        ("GET", "/v1/events?since=yesterday", None, 422, "since: 'yesterday' is no instant; allowed: RFC 3339"),
        ("GET", "/v1/events?until=soon", None, 422, "until: 'soon' is no instant; allowed: RFC 3339"),
        ("GET", "/v1/events?since=-1m&from=-1h", None, 422, "from: says what since says; allowed: one of the two"),
        ("GET", "/v1/events?from=2026-11-21T10:00:00", None, 422, "is no instant"),
        ("GET", "/v1/events?limit=1001", None, 422, "limit: '1001' is out of range; allowed: 1 to 1000"),
        ("GET", "/v1/events?when=1", None, 422, "when: is unknown; allowed: topic, database, since"),
        ("POST", "/v1/events", [{"topic": "a/+", "data": 1}], 422, "topic: '+' at index 2 is a wildcard"),
        ("POST", "/v1/events", [{"topic": "a"}], 422, "body.0.data: is missing"),
        ("POST", "/v1/events", [{"topic": "a", "data_base64": "%"}], 422, "is not base64"),
        ("POST", "/v1/events", [], 422, "at least 1 item"),
        ("PUT", "/v1/state/a", None, 422, "it is empty"),
        ("PUT", "/v1/state/a%23", 1, 422, "is a wildcard"),
        ("GET", "/v1/state/a", None, 404, "topic 'a' has no value"),
        ("POST", "/v1/transactions", {"if": [{"topic": "a"}], "write": []}, 422, "says not what must hold"),
        ("POST", "/v1/transactions", {"write": []}, 422, "has 0 entries; allowed are 1 to 64"),
    ],
)
async def test_what_is_wrong_is_said_in_a_sentence(
    keeping: Rig, method: str, path: str, body: object, status: int, sentence: str
) -> None:
    answer = await keeping.http.request(method, path, content=b"" if body is None else json.dumps(body), headers=JSON)
    assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text
    assert await read(keeping, topic="#") == []


async def test_a_node_without_events_says_so(rig: Rig) -> None:
    for path in ("/v1/events", "/v1/topics", "/v1/state/a", "/v1/databases", "/v1/devices/SN1/state"):
        answer: httpx.Response = await rig.http.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:homing:problem:no-events")


async def test_a_full_log_refuses_and_the_broker_keeps_what_comes(keeping: Rig) -> None:
    plane = keeping.application.ports.events
    assert plane is not None
    key = {"idempotency-key": "k"}
    published = await keeping.http.post("/v1/events", json=[{"topic": "gone", "data": 1}], headers=key)
    assert published.status_code == 200
    keeper = plane.keeper
    none_left = (of_all(["events", "telemetry"], -1, "new"),)  # each of its rounds finds it full
    quotas, keeper._quotas, keeper._full = keeper._quotas, none_left, dict.fromkeys(none_left, 0)
    answer = await keeping.http.post("/v1/events", json=[{"topic": "a", "data": 1}])
    assert (answer.status_code, answer.json()["type"]) == (507, "urn:homing:problem:quota-exceeded")
    await keeper.look()
    again = await keeping.http.post("/v1/events", json=[{"topic": "gone", "data": 1}], headers=key)
    assert (again.status_code, again.json()) == (200, published.json()), "it is there, and this is its answer"
    new = await keeping.http.post("/v1/events", json=[{"topic": "a", "data": 1}], headers={"idempotency-key": "l"})
    assert new.status_code == 507
    say(keeping, TOPIC, {"n": 1})
    await eventually(lambda: keeping.counters["events.refused"] > 0)
    assert keeping.broker.holds_for("homing-intake") >= 1, "canaries wait behind it"
    assert len(await read(keeping)) == 1
    deleted = await keeping.http.post("/v1/transactions", json={"if": [], "delete": ["gone"]})
    assert deleted.status_code == 200, "deletes go on"
    assert (await keeping.http.get("/v1/state/gone")).status_code == 404
    keeper._quotas = quotas
    await appended(keeping, 1)
    await eventually(lambda: keeping.broker.holds_for("homing-intake") == 0)
    assert [one["data"] for one in await read(keeping, topic=TOPIC)] == [{"n": 1}]


async def test_a_page_says_until_when_events_are_missing(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with running(events={"url": f"rocks://{tmp_path}/events", "cold": str(cold), "hot": "0s"}) as rig:
        await eventually(lambda: is_ready(rig))
        say(rig, TOPIC, {"n": 1})
        await appended(rig, 1)
        (event,) = await read(rig)
        plane = rig.application.ports.events
        assert plane is not None
        await plane.store.rotate("events", 1)
        await eventually(lambda: rig.counters["events.cooled"] == 1)
        say(rig, TOPIC, {"n": 2})
        await appended(rig, 2)
        whole = (await rig.http.get("/v1/events")).json()
        assert (whole["lost"], [one["data"]["n"] for one in whole["events"]]) == (None, [1, 2])
        for path in cold.rglob("*.parquet"):
            path.unlink()
        page = (await rig.http.get("/v1/events")).json()
        assert (page["lost"], [one["data"]["n"] for one in page["events"]]) == (event["at"], [2])
        behind = (await rig.http.get("/v1/events", params={"cursor": page["cursor"]})).json()
        assert behind["lost"] is None, "whoever is behind the place misses nothing"


async def test_events_outlive_the_node(tmp_path: Path) -> None:
    settings = {"url": f"rocks://{tmp_path}/events"}
    async with running(events=settings) as rig:
        await eventually(lambda: is_ready(rig))
        say(rig, TOPIC, {"n": 1})
        await appended(rig, 1)
    async with running(events=settings) as rig:
        await eventually(lambda: is_ready(rig))
        assert [one["data"]["n"] for one in await read(rig)] == [1]
