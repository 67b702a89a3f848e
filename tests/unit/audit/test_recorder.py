"""The writer of a node's audit: what stands in one line, and what becomes of it when the writer dies."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from app.access.origin import ASKING, RequestOrigin
from app.audit.recorder import Audit
from app.audit.writer import FEW, AuditWriter
from app.callbacks.pending import Pending
from app.core.access.callers import Caller
from app.core.audit.chain import Author, ChainHead, ChainLine, Verifier, columns_of
from app.core.audit.lines import things_of
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import DirectoryUnavailableError, UnavailableError
from app.runtime.telemetry import Counters
from app.store.audit import AuditQuery, AuditSlice, StoredLine
from tests.unit.assembly import ManualClock


class Store:
    """Keeps lines in memory, as often as they come; can lose replies."""

    def __init__(self) -> None:
        self.lines: dict[int, ChainLine] = {}
        self.calls: list[int] = []
        self.fails = 0
        self.keeps = True
        """Also what it says that it has not kept."""

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        del facts
        self.calls.append(len(lines))
        for line, columns in lines if self.keeps else ():
            assert self.lines.setdefault(line.seq, line) == line
            assert columns == columns_of(line.body)
        if self.fails:
            self.fails -= 1
            raise DirectoryUnavailableError("the reply was lost")

    async def heads(self) -> Sequence[tuple[ChainHead, int]]:
        return []

    async def page(self, query: AuditQuery) -> AuditSlice:
        raise NotImplementedError

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[StoredLine]:
        raise NotImplementedError

    async def remove(self, before_us: int, author: Author) -> int:
        raise NotImplementedError

    @property
    def told(self) -> list[dict[str, object]]:
        found = [json.loads(line.body) for _, line in sorted(self.lines.items())]
        return [thing for one in found for thing in things_of(one)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def audit(store: Store) -> Audit:
    counters: Counters = Counter()
    made = Audit(AuditWriter(store, counters, None), ManualClock(), counters, commands=True, required=False)
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


async def test_a_command_by_hand_is_a_line_with_its_caller_and_topic(audit: Audit, store: Store) -> None:
    audit.sent_by_hand(Caller.of_login("ann", issued_us=0, expires_us=1), "d/dock-1/do", "dock-1", "dji")
    await audit.close()
    assert [(one["kind"], one["who"], one["topic"]) for one in store.told] == [("publish-raw", "ci", "d/dock-1/do")]


async def test_many_commands_are_rows_of_one_line_that_name_who_asked_once(audit: Audit, store: Store) -> None:
    for number in range(FEW):
        audit.registered(registration(f"c{number}"), 0.0)
    audit.closed(pending("c3"))
    await audit.close()
    ((_, line),) = store.lines.items()
    assert len(json.loads(line.body)["askers"]) == 1
    assert [one.get("state") for one in store.told] == [None] * 3 + ["succeeded"] + [None] * (FEW - 4)
    assert store.told[3]["device"] == "dock-1"
    assert store.told[3]["tenant"] == "air"


async def test_who_asks_while_there_is_no_room_is_not_remembered(audit: Audit) -> None:
    audit._room = 0
    for number in range(1_000):
        ASKING.set(RequestOrigin(None, "192.0.2.1", b"agent %d" % number))
        audit.registered(registration(f"c{number}"), 0.0)
    assert len(audit._block.askers) == 0


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


async def test_what_ends_before_the_rules_are_known_is_on_record_without_a_tenant(audit: Audit, store: Store) -> None:
    """After a kill, a node ends what was under way before it has read who owns which device; these had no lines."""

    def unknown(_device: str) -> str:
        raise UnavailableError("this node does not know yet who may do what")

    audit.begin("node-1/b", lambda _: (None, None), unknown)
    audit.closed(pending("c1"))
    await audit.close()
    assert [(one["command"], one["device"], one["tenant"]) for one in store.told] == [("c1", "dock-1", None)]


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
    assert store.calls == [10, 10, 11]  # 250 in a line


async def test_what_comes_in_masses_is_bounded(audit: Audit, store: Store) -> None:
    for number in range(150):
        audit.denied("no rule", f"d{number}")
    await audit.close()
    assert len(store.told) == 100


async def test_a_few_things_have_a_line_each_and_many_share_lines(audit: Audit, store: Store) -> None:
    for count in (FEW - 1, FEW):
        for number in range(count):
            audit.registered(registration(f"c{number}"), 0.0)
        await audit.close()
    assert store.calls == [FEW - 1, 1]


async def test_what_was_told_before_a_clock_was_set_back_is_in_lines_of_its_own(audit: Audit, store: Store) -> None:
    """A line tells of a second at most, in the order of times: pages rely on it."""
    clock: ManualClock = audit._clock  # type: ignore[assignment] # it was given
    for number in range(FEW):
        audit.registered(registration(f"c{number}"), 0.0)
    clock.advance(2.0)
    audit.registered(registration("later"), 0.0)
    await audit.close()
    assert store.calls == [FEW + 1]


@pytest.fixture
def spooled(store: Store, tmp_path: Path) -> Callable[[str], Audit]:
    """An audit that may put lines on the disk, of a writer of this name."""

    def begin(writer: str) -> Audit:
        counters: Counters = Counter()
        made = Audit(AuditWriter(store, counters, tmp_path), ManualClock(), counters, commands=True, required=True)
        made.begin(writer, lambda _: ("ci", "2F7QW9ZD"), lambda _: "air")
        return made

    return begin


async def fail(audit: Audit, store: Store) -> None:
    store.fails = 1
    store.keeps = False
    with pytest.raises(DirectoryUnavailableError):
        await audit._write()
    store.keeps = True


async def test_lines_wait_on_the_disk_and_are_written_in_their_order(
    spooled: Callable[[str], Audit], store: Store, tmp_path: Path
) -> None:
    audit = spooled("node-1/a")
    for number in range(3):
        audit.registered(registration(f"c{number}"), 0.0)
        await fail(audit, store)
        audit.check()  # what is on the disk is on record
    assert store.lines == {}
    assert audit.fills()["audit"].size == 0
    audit.registered(registration("last"), 0.0)
    await audit.close()
    assert [one["command"] for one in store.told] == ["c0", "c1", "c2", "last"]
    assert list(tmp_path.iterdir()) == []


async def test_what_a_killed_writer_left_on_the_disk_the_next_one_writes(
    spooled: Callable[[str], Audit], store: Store, tmp_path: Path
) -> None:
    audit = spooled("node-1/a")
    for number in range(30):
        audit.registered(registration(f"c{number}"), 0.0)
        await fail(audit, store)
    (file,) = tmp_path.iterdir()
    next_one = spooled("node-1/b")
    await next_one._writer.take_over()
    assert store.lines == {}  # its writer lives
    kept = file.read_bytes()
    await audit.close()
    store.lines.clear()
    file.write_bytes(kept + b'31 {"at":1,"kind":"comm')  # as a crash leaves it
    await next_one._writer.take_over()
    assert [one["command"] for one in store.told] == [f"c{number}" for number in range(30)]
    assert {line.writer for line in store.lines.values()} == {"node-1/a"}
    verifier = Verifier("node-1/a")
    assert [fault for _, line in sorted(store.lines.items()) for fault in verifier.read(line)] == []
    await next_one.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_disk_that_takes_nothing_leaves_lines_in_memory(
    spooled: Callable[[str], Audit], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = spooled("node-1/a")

    def full(_: int) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", full)
        for number in range(2):
            audit.registered(registration(f"c{number}"), 0.0)
            await fail(audit, store)
        with pytest.raises(UnavailableError, match="the audit cannot be written"):
            audit.check()
        assert audit.fills()["audit"].size == 2
    await fail(audit, store)
    audit.check()
    audit.registered(registration("last"), 0.0)
    await audit.close()
    assert [one["command"] for one in store.told] == ["c0", "c1", "last"]


@contextmanager
def nothing_fits_behind(file: Path) -> Iterator[None]:
    """As on a full disk: of what is written behind the end of this file, a part of a line is taken."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_full_disk_keeps_no_line_from_a_database_that_is_back(
    spooled: Callable[[str], Audit], store: Store, tmp_path: Path
) -> None:
    audit = spooled("node-1/a")
    audit.followed({"topic": "x" * 2**20})
    await fail(audit, store)
    (file,) = tmp_path.iterdir()
    with nothing_fits_behind(file):
        audit.registered(registration("c0"), 0.0)
        await fail(audit, store)
        assert audit.fills()["audit"].size == 1
        await audit._write()
        assert [one["kind"] for one in store.told] == ["stream", "command"]
        await audit.close()
    assert list(tmp_path.iterdir()) == []
