"""The figures of what one process writes for a message and an event, and of devices that connect at once."""

from __future__ import annotations

import pytest

from homing_rig.figures import kept_bytes as figures
from homing_rig.figures.connects import connects
from homing_rig.figures.event_folder import event_folder
from homing_rig.figures.kit import Figure, Findings


@pytest.mark.long
async def test_bytes_are_those_of_messages_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "LEAD", 0.2)
    findings = Findings("", lambda _: None)
    await figures.kept_bytes(findings, messages=200, payload=50)
    found = [one for one in findings.entries if isinstance(one, Figure)]
    assert len(found) == 3 * len(figures.TRAFFIC)
    assert all(one.value >= 0 for one in found), "a disk in memory counts nothing"


async def test_an_event_is_written_in_both_folders() -> None:
    findings = Findings("", lambda _: None)
    await event_folder(findings, events=512, rounds=1)
    found = {one.name: one.value for one in findings.entries if isinstance(one, Figure)}
    for side in ("alone", "shared"):
        assert found[f"bytes written per event, {side}"] >= 0, "a disk in memory counts nothing"
        assert found[f"CPU per event, {side}"] > 0


async def test_devices_log_in_with_keys_of_their_own() -> None:
    findings = Findings("", lambda _: None)
    await connects(findings, devices=5, at_once=2)
    found = {one.name: one.value for one in findings.entries if isinstance(one, Figure)}
    assert found["devices a second, with new sessions"] > 0
    assert found["devices a second, back to their sessions"] > 0
