"""A webhook tells that a second person is asked, so that nobody has to look whether there is something to approve."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.access.changes import Put
from app.core.access.model import Role
from homing_rig.receivers import Receiver, receiving
from tests.api.test_access import Site, guarded
from tests.api.test_two_persons import RULE, decide, person, proposal, tag
from tests.api.test_webhooks import SERVED, ask

TOLD = ["command.approval_asked", "command.succeeded", "command.cancelled"]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, webhooks=SERVED) as site:
        await site.change(
            Put(Role(name="careful", tenant_id="air", rules=(RULE,))),
            Put(Role(name="hooks", tenant_id="air", rules=("allow webhooks *:* on *",))),
        )
        await person(site, "anna", "operator", "careful")
        await person(site, "ben", "approver")
        await site.add("hooks", "hooks")
        yield site


async def subscribe(site: Site, receiver: Receiver, events: list[str]) -> None:
    body = {"url": receiver.url, "events": events}
    answer = await ask(site.rig, "POST", json=body, headers=site.headers("hooks"))
    assert answer.status_code == 201, answer.text


def told(receiver: Receiver) -> list[tuple[str, dict[str, Any]]]:
    events = [json.loads(body) for _, body in receiver.got]
    return [(one["type"], one["data"]) for one in events]


async def test_it_is_told_with_what_a_decision_names(site: Site) -> None:
    async with receiving() as receiver:
        await subscribe(site, receiver, TOLD)
        command = await proposal(site)
        await receiver.wait(1)
        ((kind, data),) = told(receiver)
        assert (kind, data["sequence"], data["command"]["id"]) == ("command.approval_asked", 0, command["id"])
        assert data["command"]["hold"]["waits_for"][0] == "approval"
        assert data["fingerprint"] == await tag(site, command, "ben")
        answer = await decide(site, "ben", command, tag=data["fingerprint"])
        assert answer.status_code == 200, answer.text
        await receiver.wait(2)
        kind, data = told(receiver)[1]
        assert (kind, data["sequence"], "fingerprint" in data) == ("command.succeeded", 1, False)


async def test_who_wants_outcomes_alone_is_not_asked(site: Site) -> None:
    async with receiving() as receiver:
        await subscribe(site, receiver, TOLD[1:])
        command = await proposal(site)
        assert (await decide(site, "ben", command, "refuse", tag=await tag(site, command, "ben"))).status_code == 200
        await receiver.wait(1)
        assert [kind for kind, _ in told(receiver)] == ["command.cancelled"]
