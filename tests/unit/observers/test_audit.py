"""The writer of a node's audit: what stands in one line, and what becomes of it when the writer dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.callbacks.pending import Pending
from app.core.audit import Head, Line, columns_of
from app.core.callback import Registration
from app.core.command import CommandState
from app.core.errors import DirectoryUnavailableError
from app.core.routing import Outcome
from app.observers.audit import Audit
from app.store.audit import AuditQuery, Kept
from tests.unit.assembly import ManualClock


class Store:
    """Keeps lines in memory, as often as they come; can lose replies."""

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}
        self.calls: list[int] = []
        self.fails = 0

    async def append(self, lines: Sequence[Kept], facts: int) -> None:
        del facts
        self.calls.append(len(lines))
        for line, columns in lines:
            assert self.lines.setdefault(line.seq, line) == line
            assert columns == columns_of(line.body)
        if self.fails:
            self.fails -= 1
            raise DirectoryUnavailableError("the reply was lost")

    async def heads(self) -> Sequence[tuple[Head, int]]:
        return []

    async def page(self, query: AuditQuery) -> Sequence[Kept]:
        raise NotImplementedError

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[Kept]:
        raise NotImplementedError

    @property
    def told(self) -> list[dict[str, object]]:
        return [json.loads(line.body) for _, line in sorted(self.lines.items())]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def audit(store: Store) -> Audit:
    made = Audit(store, ManualClock(), Counter(), commands=True, required=False)
    made.begin("node-1/a", lambda _: ("ci", "2F7QW9ZD"), lambda _: "air")
    return made


def registration(command_id: str) -> Registration:
    return Registration(command_id, "dock-1", "open", b"{}", "dji", "node-1", (), timedelta(), timedelta())


def pending(command_id: str) -> Pending:
    found = Pending(0.0)
    found.registered, found.command_id, found.device_id = True, command_id, "dock-1"
    found.state = CommandState.SUCCEEDED
    return found


async def test_a_command_that_ends_at_once_is_one_line(audit: Audit, store: Store) -> None:
    audit.registered(registration("c1"), 0.0)
    audit.joined(registration("c1"), 0.0)
    audit.closed(pending("c1"))
    await audit.close()
    assert [(one["kind"], one.get("state")) for one in store.told] == [("command", "succeeded"), ("joined", None)]


async def test_a_command_that_takes_longer_has_its_outcome_in_a_line_of_its_own(audit: Audit, store: Store) -> None:
    audit.registered(registration("c1"), 0.0)
    await audit.close()
    audit.closed(pending("c1"))
    await audit.close()
    assert [(one["kind"], one.get("state")) for one in store.told] == [("command", None), ("outcome", "succeeded")]


async def test_outcomes_of_others_are_told_by_who_ends_them(audit: Audit, store: Store) -> None:
    audit.foreign(Outcome("c9", CommandState.TIMED_OUT, 0))
    audit.foreign(Outcome("c8", CommandState.TIMED_OUT, 0, home_heard=True))
    audit.closed(Pending(0.0))  # one that was never on record
    await audit.close()
    assert [(one["kind"], one["command"]) for one in store.told] == [("outcome", "c9")]


async def test_lines_are_written_once_though_replies_are_lost(audit: Audit, store: Store) -> None:
    for number in range(2_500):
        audit.registered(registration(f"c{number}"), 0.0)
    store.fails = 2
    for _ in range(2):
        with pytest.raises(DirectoryUnavailableError):
            await audit.close()
    audit.registered(registration("last"), 0.0)
    await audit.close()
    assert [one["command"] for one in store.told] == [*[f"c{number}" for number in range(2_500)], "last"]
    assert store.calls == [1000, 1000, 1000, 1000, 501]


async def test_what_comes_in_masses_is_bounded(audit: Audit, store: Store) -> None:
    for number in range(150):
        audit.denied("no rule", f"d{number}")
    await audit.close()
    assert len(store.told) == 100
