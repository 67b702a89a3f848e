"""Lists of what is on record, in pages: they were whole in 0.2.0, and are where nobody asks for less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.access.changes import Put
from app.core.access.model import Role
from tests.api.test_access import Site, guarded

LISTS = ("keys", "principals", "roles", "tenants", "webhooks")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, webhooks={"secret_key": "k" * 32}) as site:
        await site.change(
            Put(Role(name="pilot", tenant_id="air", rules=("allow read *:* on *",))),
            Put(Role(name="viewer-of-all", tenant_id=None, rules=("allow read *:* on *",))),
        )
        for number in range(3):
            hook = {"url": f"https://example.com/{number}", "events": ["command.succeeded"], "tenant": "air"}
            made = await site.rig.http.post("/v1/webhooks", json=hook, headers=site.headers("boss"))
            assert made.status_code == 201, made.text
        yield site


async def read(site: Site, path: str) -> dict[str, Any]:
    answer = await site.rig.http.get(f"/v1/{path}", headers=site.headers("boss"))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("name", LISTS)
async def test_all_pages_together_are_the_list(site: Site, name: str) -> None:
    whole = await read(site, name)
    assert whole["cursor"] is None
    assert len(whole[name]) >= 2
    pages: list[Any] = []
    cursor = ""
    while True:
        page = await read(site, f"{name}?limit=2{cursor}")
        pages.append(page[name])
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert [one for page in pages for one in page] == whole[name]
    assert {len(page) for page in pages[:-1]} <= {2}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=s1.AAAA", "cursor=", "page=2"])
async def test_what_is_wrong_is_said(site: Site, name: str, query: str) -> None:
    answer = await site.rig.http.get(f"/v1/{name}?{query}", headers=site.headers("boss"))
    assert answer.status_code == 422, answer.text


async def test_built_in_roles_come_first(site: Site) -> None:
    names = [one["name"] for one in (await read(site, "roles"))["roles"]]
    assert names.index("admin") < names.index("viewer-of-all") < names.index("pilot")
