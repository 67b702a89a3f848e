"""The list of a webhook's deliveries, page by page: nobody reads on with what was given for another list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.core.access.changes import Put
from app.core.access.model import Role
from homing_rig.receivers import receiving
from tests.api.rig import Rig, running
from tests.api.test_access import Site, guarded
from tests.api.test_webhooks import ALL, SERVED, ask
from tests.waiting import eventually

CALLERS = ("hooks-1", "hooks-2")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, webhooks=SERVED) as site:
        await site.change(Put(Role(name="hooks", tenant_id="air", rules=("allow webhooks *:* on *",))))
        for who in CALLERS:
            await site.add(who, "hooks")
        yield site


async def made(site: Site, url: str, count: int) -> str:
    """A webhook that has so many deliveries."""
    answer = await ask(site.rig, "POST", json={"url": url, "events": ALL}, headers=site.headers("hooks-1"))
    assert answer.status_code == 201, answer.text
    webhook_id: str = answer.json()["id"]
    for _ in range(count):
        assert (await site.send("operator")).json()["state"] == "succeeded"
    return webhook_id


async def listed(site: Site, webhook_id: str, who: str = "hooks-1", **query: Any) -> Any:  # noqa: ANN401 - any JSON
    answer = await ask(site.rig, "GET", f"/{webhook_id}/deliveries", params=query, headers=site.headers(who))
    return answer.json() if answer.status_code == 200 else answer


async def listed_openly(rig: Rig, webhook_id: str, **query: Any) -> Any:  # noqa: ANN401 - any JSON
    return (await ask(rig, "GET", f"/{webhook_id}/deliveries", params=query)).json()


async def all_ended(read: Callable[[], Awaitable[Any]]) -> None:
    """Return when both of the two deliveries are where they stay in the list."""

    async def ended() -> bool:
        return [one["progress"] for one in (await read())["deliveries"]] == ["delivered", "delivered"]

    await eventually(ended)


async def test_all_pages_together_are_the_list(site: Site) -> None:
    hang = asyncio.Event()

    async def first_two(_request: web.Request) -> web.Response:
        if len(receiver.got) > 2:
            await hang.wait()
        return web.Response()

    async with receiving() as receiver:
        receiver.answer = first_two
        webhook_id = await made(site, receiver.url, 5)
        await receiver.wait(5)

        async def two_are_delivered() -> bool:
            found = await listed(site, webhook_id)
            return (len(found["deliveries"]), found["waiting"]) == (5, 3)

        await eventually(two_are_delivered)
        whole = await listed(site, webhook_id)
        progress = [one["progress"] for one in whole["deliveries"]]
        assert progress == ["waiting"] * 3 + ["delivered"] * 2
        found: list[Any] = []
        page = await listed(site, webhook_id, limit=2)
        while page["cursor"] is not None:
            assert page["cursor"].startswith("s1.")
            assert len(page["deliveries"]) == 2
            found += page["deliveries"]
            page = await listed(site, webhook_id, limit=2, cursor=page["cursor"])
        assert found + page["deliveries"] == whole["deliveries"]
        assert whole["cursor"] is None
        for outcome, expected in (
            ("waiting", whole["deliveries"][:3]),
            ("delivered", whole["deliveries"][3:]),
            ("given_up", []),
        ):
            assert await of_outcome(site, webhook_id, outcome) == expected
        hang.set()


async def of_outcome(site: Site, webhook_id: str, outcome: str) -> list[Any]:
    """The deliveries that stand so, read one by one."""
    found: list[Any] = []
    page = await listed(site, webhook_id, outcome=outcome, limit=1)
    while page["cursor"] is not None:
        found += page["deliveries"]
        page = await listed(site, webhook_id, outcome=outcome, limit=1, cursor=page["cursor"])
    return found + list(page["deliveries"])


async def test_a_cursor_is_for_one_list_one_webhook_and_one_caller(site: Site) -> None:
    async with receiving() as receiver:
        first, second = [await made(site, receiver.url, 0) for _ in range(2)]
        for _ in range(2):
            await site.send("operator")
        await all_ended(lambda: listed(site, first))
        cursor = (await listed(site, first, limit=1))["cursor"]
        hooks = await ask(site.rig, "GET", params={"limit": 1}, headers=site.headers("hooks-1"))
        assert len((await listed(site, first, cursor=cursor))["deliveries"]) == 1
        refused = [
            await listed(site, second, cursor=cursor),
            await listed(site, first, "hooks-2", cursor=cursor),
            await listed(site, first, cursor=hooks.json()["cursor"]),
            await listed(site, first, cursor=f"{second}.ended.1.evt_x"),
            await listed(site, first, cursor=f"{first}.soon.1.evt_x"),
            await listed(site, first, cursor="s1.AAAA"),
            await ask(site.rig, "GET", params={"cursor": cursor}, headers=site.headers("hooks-1")),
        ]
        assert [one.status_code for one in refused] == [422] * 7
        assert all("cursor" in one.text for one in refused)


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"page": 2}, {"cursor": ""}, {"outcome": "lost"}]
)
async def test_what_is_wrong_is_said(site: Site, query: dict[str, Any]) -> None:
    webhook_id = await made(site, "https://a.example/hook", 0)
    assert (await listed(site, webhook_id, **query)).status_code == 422


async def test_a_node_that_asks_nobody_reads_on_as_well() -> None:
    async with running(webhooks=SERVED) as rig, receiving() as receiver:
        hooks = [(await ask(rig, "POST", json={"url": receiver.url, "events": ALL})).json()["id"] for _ in range(2)]
        for _ in range(2):
            await rig.send("ok")
        await all_ended(lambda: listed_openly(rig, hooks[0]))
        first = await listed_openly(rig, hooks[0], limit=1)
        rest = await listed_openly(rig, hooks[0], cursor=first["cursor"])
        assert len({one["event_id"] for one in first["deliveries"] + rest["deliveries"]}) == 2
        foreign = await ask(rig, "GET", f"/{hooks[1]}/deliveries", params={"cursor": first["cursor"]})
        assert foreign.status_code == 422
