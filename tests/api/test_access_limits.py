"""Limits of rules over HTTP: they are kept, shared by those whom a rule names, and told."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from app.core.access.changes import Put
from app.core.access.keys import make_key
from app.core.access.model import Credential, Role, Scheme
from tests.api.test_access import Site, site

__all__ = ["site"]  # fixtures


async def test_a_limit_is_kept_and_says_when_there_is_more(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 3",))))
    await site.add("limited", "operator", "slow")
    assert [(await site.send("limited")).status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = await site.send("limited")
    assert 3500 < int(refused.headers["retry-after"]) <= 3600
    assert refused.json()["detail"] == "limited by limit send *:* on * 1/h burst 3"
    assert (await site.send("operator")).status_code == 200


async def test_who_is_limited_is_told_by_the_fields_of_the_draft(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 2/min burst 1",))))
    await site.add("limited", "operator", "slow")
    assert "ratelimit" not in (await site.send("limited")).headers
    refused = await site.send("limited")
    assert refused.headers["ratelimit-policy"] == '"send";q=2;w=60'
    assert refused.headers["ratelimit"] == f'"send";r=0;t={refused.headers["retry-after"]}'


@pytest.mark.parametrize(
    ("per", "expected"),
    [("principal", [200, 429, 200, 429]), ("tenant", [200, 429, 429, 429]), ("device", [200, 200, 429, 429])],
)
async def test_a_limit_is_shared_by_those_whom_the_rule_names(site: Site, per: str, expected: list[int]) -> None:
    rule = f"limit send *:* on * 1/h burst 1 per {per}"
    await site.change(Put(Role(name="slow", tenant_id="air", rules=(rule,))))
    for name in ("one", "two"):
        await site.add(name, "operator", "slow")
    asked = [("one", "drone-1"), ("one", "drone-2"), ("two", "drone-1"), ("two", "drone-2")]
    answers = [await site.send(who, device, "ok", one_way=True) for who, device in asked]
    assert [one.status_code for one in answers] == expected


async def test_all_keys_of_a_principal_share_its_limit(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 1",))))
    await site.add("limited", "operator", "slow")
    assert (await site.send("limited")).status_code == 200
    again = make_key(secrets.token_bytes)
    credential = Credential(
        id=again.id, principal_id="limited", scheme=Scheme.KEY, name="", digest=again.digest, created_us=0
    )
    await site.change(Put(credential))
    site.keys["limited"] = again
    assert (await site.send("limited")).status_code == 429


async def test_a_node_that_stops_spends_nothing_of_a_limit(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 1",))))
    await site.add("limited", "operator", "slow")
    node: Any = site.rig.node
    node._closed = True
    assert (await site.send("limited")).status_code == 503
    node._closed = False
    assert (await site.send("limited")).status_code == 200
