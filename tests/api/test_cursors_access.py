"""Cursors tell nobody anything of another tenant beside the entries of their lists.

Every list is read before and after another tenant has done much, by callers who may read nothing of that. All answers
must be the same, byte for byte, but for what is sealed, which must be of the same length.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.test_access import OTHER, OWN, Site, an_open_command, guarded
from tests.api.test_events import say
from tests.waiting import eventually

SEALED: Final = re.compile(rb"s1\.[A-Za-z0-9_-]+")
CALLERS: Final = ("nobody", "viewer", "operator", "admin", "only-one")
FOREIGN: Final = f"homing/{OTHER}/event"
LISTS: Final = (
    "/commands",
    "/commands?limit=1",
    "/commands?limit=2",
    "/commands?limit=3",
    f"/commands?device={OTHER}",
    f"/commands?device={OTHER}&limit=1",
    "/commands?device=lamp-nowhere&limit=1",
    "/commands?state=succeeded&limit=1",
    f"/devices/{OTHER}/commands?limit=1",
    f"/devices/{OWN}/commands?limit=1",
    "/events",
    "/events?limit=1",
    "/events?limit=3",
    f"/events?topic={FOREIGN}",
    f"/events?topic={FOREIGN}&limit=1",
    f"/events?topic=homing/{OTHER}/%23&limit=1",
    "/events?topic=homing/%2B/event&limit=1",
    "/events?topic=homing/lamp-nowhere/event&limit=1",
    "/events?from=-10m&limit=1",
    "/topics",
    "/topics?limit=1",
    "/topics?limit=3",
    f"/topics?topic={FOREIGN}&limit=1",
    "/topics?after=homing",
    f"/state/{FOREIGN}",
    f"/devices/{OTHER}/state",
    "/devices?limit=1",
    "/devices?limit=2",
    "/devices?id=lamp-*",
    "/devices?tenant=ground",
    "/devices?heard=true",
    "/devices?heard=true&limit=1",
    "/devices?heard=true&limit=2",
    "/devices?heard=true&id=lamp-*",
    "/approvals?limit=1",
    "/cursors",
    "/exchanges",
    "/fleet-runs",
    "/fleet-runs?limit=1",
    "/queues",
    "/queues?limit=1",
    "/schedules",
    "/streams",
    "/databases",
    "/audit?limit=1",
    "/audit?device=lamp-2",
    *(
        f"/{name}{limit}"
        for name in ("keys", "principals", "roles", "tenants", "webhooks")
        for limit in ("", "?limit=1")
    ),
)


THINGS: Final = {
    "/queues/others": {"routes": [{"database": "events", "topic": "#"}]},
    "/exchanges/others": {"kind": "topic"},
    "/schedules/others": {"cron": "0 3 * * *", "device": OTHER, "command": {"method": "ok"}},
    "/fleet-runs": {"targets": {"devices": [OTHER]}, "command": {"method": "ok"}},
}
"""The things of a tenant that lists tell of; a schedule and a run of one device."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    databases = "events=24h,telemetry=1h"
    hooks = {"secret_key": "k" * 32}
    async with guarded(tmp_path, events={"url": "memory://", "databases": databases}, webhooks=hooks) as site:
        await site.add("only-one", "operator", narrow=[f"allow * *:* on {OWN}"])
        for number in (1, 2):
            assert (await site.send("operator")).json()["state"] == "succeeded"  # nothing of it changes any more
            say(site.rig, f"homing/{OWN}/event", {"n": number})
        await eventually(lambda: site.rig.counters["events.appended"] >= 2)
        yield site


async def the_neighbour_is_busy(site: Site) -> None:
    """More than a page of everything, before and behind what the others have."""
    headers = site.headers("neighbour")
    before = site.rig.counters["events.appended"]
    for number in range(20):
        await an_open_command(site, OTHER)
        assert (await site.send("neighbour", OTHER)).status_code == 200
        say(site.rig, f"homing/lamp-{number}/event", {"n": number})
        say(site.rig, FOREIGN, {"n": number})
        put = await site.rig.http.put(f"/v1/devices/lamp-{number}", json={"note": "x"}, headers=headers)
        assert put.status_code in (200, 201), put.text
    for what, body in THINGS.items():
        method = "POST" if what == "/fleet-runs" else "PUT"
        put = await site.rig.http.request(method, f"/v1{what}", json=body, headers=headers)
        assert put.status_code in (200, 201, 202), put.text
    hook = {"url": "https://example.com/hook", "events": ["command.succeeded"]}
    assert (await site.rig.http.post("/v1/webhooks", json=hook, headers=headers)).status_code == 201
    assert (await site.rig.http.post("/v1/keys", json={"label": "x"}, headers=headers)).status_code == 201
    await eventually(lambda: site.rig.counters["events.appended"] >= before + 40)


async def answers(site: Site, who: str) -> dict[str, Any]:
    """The answers of every list, page by page to its end."""
    told = {}
    for path in LISTS:
        pages: list[Any] = []
        more: str | None = ""
        while more is not None and len(pages) < 12:
            join = "&" if "?" in path else "?"
            further = f"{join}cursor={more}" if more else ""
            answer = await site.rig.http.get(f"/v1{path}{further}", headers=site.headers(who))
            body = answer.json()
            assert_sealed(body)
            text = SEALED.sub(lambda found: b"s" * len(found[0]), answer.content)
            kept = {name: value for name, value in answer.headers.items() if name not in ("date", "traceparent")}
            pages.append((answer.status_code, text, kept))
            more = body.get("cursor") if body.get("more", True) else None
        told[path] = pages
    return told


def assert_sealed(body: dict[str, Any]) -> None:
    assert str(body.get("cursor") or "s1.").startswith("s1.")


async def test_lists_say_the_same_whatever_another_tenant_does(site: Site) -> None:
    before = {who: await answers(site, who) for who in CALLERS}
    await the_neighbour_is_busy(site)
    for who, told in before.items():
        now = await answers(site, who)
        for path, pages in told.items():
            if path.startswith("/audit") and who == "admin":
                continue  # its own lines grow with what it asks: test_audit.py
            assert now[path] == pages, (who, path)


async def test_the_tag_of_a_kept_cursor_does_not_tell_whether_others_have_said_something(site: Site) -> None:
    headers = site.headers("operator")

    async def committed(*, again: str | None = None) -> tuple[str, str]:
        """The cursor at the end of all events, and its tag; a commit is repeated whatever the tag is by now."""
        page: dict[str, Any] = {"more": True, "cursor": ""}
        while page["more"]:
            behind = {"cursor": page["cursor"]} if page["cursor"] else {}
            page = (await site.rig.http.get("/v1/events", params=behind, headers=headers)).json()
        condition = {} if again is None else {"if-match": again}
        said = {"cursor": page["cursor"], "topic": "#"}
        put = await site.rig.http.put("/v1/cursors/mine", json=said, headers={**headers, **condition})
        assert put.status_code == 200, put.text
        return put.json()["committed_at"], put.headers["etag"]

    _, first = await committed()
    _, still = await committed(again=first)
    before = site.rig.counters["events.appended"]
    say(site.rig, FOREIGN, {"n": 1})
    await eventually(lambda: site.rig.counters["events.appended"] > before)
    _, moved = await committed(again=still)
    assert len({first, still, moved}) == 3, "it would be the same until somebody else has said something"
    put = await site.rig.http.get("/v1/cursors/mine", headers=headers)
    assert put.headers["etag"] == moved


async def test_cursors_of_the_same_place_differ_and_read_on_alike(site: Site) -> None:
    headers = site.headers("operator")
    pages = [(await site.rig.http.get("/v1/commands?limit=1", headers=headers)).json() for _ in range(2)]
    cursors = [page["cursor"] for page in pages]
    assert cursors[0] != cursors[1]
    assert len(cursors[0]) == len(cursors[1])
    behind = [
        (await site.rig.http.get(f"/v1/commands?limit=1&cursor={one}", headers=headers)).json() for one in cursors
    ]
    assert behind[0] == behind[1]
    assert behind[0]["commands"] != pages[0]["commands"]


async def test_a_cursor_of_0_2_0_reads_on(site: Site) -> None:
    headers = site.headers("operator")
    newest, oldest = (await site.rig.http.get("/v1/commands", headers=headers)).json()["commands"]
    stamp = (await site.rig.store.read(newest["id"])).created_at
    plain = await site.rig.http.get(f"/v1/commands?cursor={stamp}_{newest['id']}", headers=headers)
    assert [one["id"] for one in plain.json()["commands"]] == [oldest["id"]]
    events = await site.rig.http.get("/v1/events?cursor=1-0-0-0-0", headers=headers)
    assert len(events.json()["events"]) == 2


@pytest.mark.parametrize("path", ["/commands", "/events", "/topics", "/devices"])
async def test_what_is_no_cursor_of_this_list_is_refused(site: Site, path: str) -> None:
    headers = site.headers("operator")
    given = (await site.rig.http.get("/v1/events?limit=1", headers=headers)).json()["cursor"]
    changed = given[:-4] + ("AAAA" if given[-4:] != "AAAA" else "BBBB")
    for cursor in (changed, "s1.", "s1.AAAA", given if path != "/events" else changed):
        answer = await site.rig.http.get(f"/v1{path}", params={"cursor": cursor}, headers=headers)
        assert answer.status_code == 422
        assert "is none that this list of this cluster gave" in answer.json()["errors"][0]["reason"]
