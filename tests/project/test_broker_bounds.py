"""docs/operations/broker-bounds.md has each bound of the broker with its value, and tests that are there.

docs/queues.md names tests of bad input likewise.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final

import pytest

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import ReasonCode
from app.settings.broker import BrokerSettings
from tests.pages import ROOT
from tests.project.test_failure_modes import exists

PAGE: Final = (ROOT / "docs" / "operations" / "broker-bounds.md").read_text(encoding="utf-8")
_QUEUES: Final = (ROOT / "docs" / "queues.md").read_text(encoding="utf-8")
_OF_QUEUES: Final = _QUEUES.partition("## Bad input\n")[2].partition("\n## ")[0]
ROWS: Final = [f"- **{row}" for page in (PAGE, _OF_QUEUES) for row in page.split("\n- **")[1:]]


def test_it_has_every_bound_with_its_value() -> None:
    rows = re.findall(r"^- \*\*`(\w+)`\*\* ([\d,]+)", PAGE, re.MULTILINE)
    told = {name: float(value.replace(",", "")) for name, value in rows}
    settings = BrokerSettings()
    of_settings = {
        "connections": settings.max_connections,
        "connections_per_peer": settings.max_connections_per_peer,
        "connects_per_peer": settings.max_connects_per_peer,
        "sessions": settings.max_sessions,
        "all_subscriptions": settings.max_subscriptions,
        "waiting_bytes": settings.max_waiting_bytes,
        "retained_bytes": settings.max_retained_bytes,
        "process_bytes": settings.max_process_bytes,
    }
    assert told == asdict(BrokerBounds()) | of_settings


def test_it_names_reason_codes_as_they_are_counted() -> None:
    named = re.findall(r"0x([0-9A-F]{2}) `(\w+)`", PAGE)
    assert len(named) > 10
    assert [(code, name) for code, name in named if ReasonCode(int(code, 16)).name.lower() != name] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.splitlines()[0][4:40])
def test_each_row_says_what_is_seen_and_names_tests_that_are_there(row: str) -> None:
    _, seen, tests = re.split(r"\n  - (?:Seen|Test): ", row)
    assert seen
    named = re.findall(r"`(\w+/[\w/]+\.py)::(\w+)`", tests)
    assert named or tests.startswith("the same")
    assert [f"{file}::{name}" for file, name in named if not exists(file, name)] == []
