"""Keys over HTTP: what is none, what counts no more, and what may do less."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from app.core.access.changes import Revoke
from tests.api.rig import until
from tests.api.test_access import Site, site

__all__ = ["site"]  # fixtures


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Basic eDp5", "send Authorization: Bearer"),
        ("", "send Authorization: Bearer"),
        ("Bearer", "the API key does not have the form of one"),
        ("Bearer \xff", "the API key does not have the form of one"),
        ("Bearer homing_2F7QW9ZD_" + "a" * 43 + "_000000", "the API key has a wrong checksum: it was mistyped"),
    ],
)
async def test_what_is_no_key_is_refused_with_a_sentence(site: Site, header: str, said: str) -> None:
    refused = await site.rig.http.get("/v1/commands", headers=[(b"authorization", header.encode("latin-1"))])
    assert refused.status_code == 401
    assert said in refused.json()["detail"]
    assert refused.json()["type"] == "urn:homing:problem:unauthenticated"


async def test_a_key_that_was_revoked_or_has_expired_counts_for_nothing_at_once(site: Site) -> None:
    assert (await site.send("operator")).status_code == 200
    await site.change(Revoke(credential_id=site.keys["operator"].id, at_us=1))
    refused = await site.send("operator")
    assert refused.status_code == 401
    assert "revoked" in refused.json()["detail"]
    await site.add("late", "operator", expires_us=1)
    assert "expired" in (await site.send("late")).json()["detail"]


async def test_callers_that_wait_are_sent_away_when_their_key_is_revoked(site: Site) -> None:
    waiting = asyncio.create_task(site.send("operator", method="silent", timeout="1m"))
    staying = asyncio.create_task(site.send("admin", method="silent", timeout="1m"))
    await until(lambda: len(site.rig.application.parking) == 2)
    await site.change(Revoke(credential_id=site.keys["operator"].id, at_us=1))
    assert (await waiting).status_code == 401
    assert not staying.done()
    assert site.rig.counters["caller.unwanted"] == 1
    await end(staying)


async def end(task: asyncio.Task[httpx.Response]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_narrowed_key_may_do_less(site: Site) -> None:
    await site.add("narrow", "operator", narrow=["allow read *:* on *", "allow send *:ok on *"])
    assert (await site.send("narrow")).status_code == 200
    refused = await site.send("narrow", method="refuse")
    assert refused.status_code == 403
    assert refused.json()["detail"] == "send on 'drone-1' is not among what this key was narrowed to"
