"""Two second persons who decide about a command in the same moment: one counts, and one is on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_access import Site
from tests.api.test_two_persons import becomes, decide, person, proposal, tag, with_two_persons


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with with_two_persons(tmp_path) as site:
        yield site


async def test_two_at_once_one_counts(site: Site) -> None:
    await person(site, "carl", "approver")
    for pair in (("approve", "approve"), ("approve", "refuse")):
        command = await proposal(site)
        fingerprint = await tag(site, command)
        answers = await asyncio.gather(
            decide(site, "ben", command, pair[0], tag=fingerprint),
            decide(site, "carl", command, pair[1], tag=fingerprint),
        )
        assert sorted(one.status_code for one in answers) == [200, 409]
        winner = next(decision for decision, one in zip(pair, answers, strict=True) if one.status_code == 200)
        await becomes(site, command, "succeeded" if winner == "approve" else "cancelled")


async def test_of_two_at_once_one_is_on_record(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit would name somebody for a decision that they have not made."""
    await person(site, "carl", "approver")
    command = await proposal(site)
    fingerprint, ports = await tag(site, command), site.rig.application.ports
    decides, both, recorded = ports.commands.approver.decide, asyncio.Barrier(2), list[str]()

    async def together(*about: Any) -> None:
        await both.wait()
        await decides(*about)

    monkeypatch.setattr(ports.commands.approver, "decide", together)
    monkeypatch.setattr(ports.audit, "decided", lambda *about: recorded.append(about[-1]))
    answers = await asyncio.gather(
        decide(site, "ben", command, "approve", tag=fingerprint),
        decide(site, "carl", command, "refuse", tag=fingerprint),
    )
    counted = [one.json()["hold"]["approval"]["decision"] for one in answers if one.status_code == 200]
    assert (len(counted), recorded) == (1, counted)
