"""The audit in every database: what is kept, found again, and what is done to it past the program."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.audit.verification import verify
from app.core.access.changes import Put
from app.core.audit.chain import DIRECTORY, REMOVALS, Author, Chain, ChainHead, ChainLine, body_of, columns_of
from app.core.audit.lines import AuditBatch
from app.core.errors import EntryConflictError
from app.store.audit import SPAN_US, AuditEntry, AuditQuery, AuditStore, StoredLine
from app.store.directory import AccessDirectory
from app.store.sql.audit.lines import SqlAudit
from tests.contract.directory_places import ALL, KEY, PLAIN_DEVICE
from tests.contract.directory_places import Place as Database

WRITERS = ("node-1/a", "node-2/b")


@pytest.fixture
def audit(directory: AccessDirectory) -> AuditStore:
    return directory.audit


def lines_of(writer: str, count: int) -> list[ChainLine]:
    chain = Chain(writer)
    return [
        chain.append(
            body_of("command", number, {"who": f"p{number % 3}", "device": f"d{number % 2}", "tenant": writer})
        )
        for number in range(count)
    ]


def kept(*written: ChainLine) -> list[StoredLine]:
    return [StoredLine(line, columns_of(line.body)) for line in written]


def lines(found: Sequence[StoredLine]) -> list[ChainLine]:
    return [one.line for one in found]


async def test_lines_are_kept_byte_by_byte_and_once(audit: AuditStore) -> None:
    written = lines_of("w", 5)
    await audit.append(kept(*written[:3]), 3)
    await audit.append(kept(*written[1:]), 5)
    await audit.append(kept(*written), 5)
    await audit.append([], 5)
    assert lines(await audit.read(("", 0), 99)) == written
    assert await audit.heads() == [(ChainHead("w", 5, written[-1].hash), 5)]


async def test_pages_go_from_the_newest_line_backwards(audit: AuditStore) -> None:
    one, other = lines_of("a", 10), lines_of("b", 10)
    await audit.append(kept(*one), 10)
    await audit.append(kept(*other), 10)
    newest = sorted([*one, *other], key=lambda line: (line.seq, line.writer), reverse=True)
    found = await all_pages(audit, AuditQuery(limit=3))
    assert [(one.place.writer, one.place.seq, one.body) for one in found] == [
        (line.writer, line.seq, line.body) for line in newest
    ]
    assert len((await audit.page(AuditQuery(who="p1", device="d0", tenant="a"))).entries) == 1
    assert len((await audit.page(AuditQuery(since_us=8))).entries) == 4
    assert (await audit.page(AuditQuery(who="p1\0"))).entries == []  # PostgreSQL has no such text


async def all_pages(audit: AuditStore, query: AuditQuery) -> list[AuditEntry]:
    found: list[AuditEntry] = []
    while True:
        page = await audit.page(query)
        found += page.entries
        if page.before is None:
            return found
        query = query._replace(before=page.before)


@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_pages_are_in_order_of_time_though_lines_tell_of_many_things_and_overlap(
    audit: AuditStore, limit: int
) -> None:
    """Three writers, each of which tells of a time that overlaps with those of the others, in lines of any length."""
    assert isinstance(audit, SqlAudit)
    audit.most_rows = 3
    rng = random.Random(3)
    told: list[dict[str, Any]] = []
    chains = {writer: Chain(writer) for writer in (*WRITERS, "node-3/c")}
    at = 10_000_000
    for number in range(40):
        at += rng.randrange(SPAN_US // 2)
        chain = rng.choice(list(chains.values()))
        times = sorted(at - rng.randrange(SPAN_US + 1) for _ in range(rng.choice((1, 1, 2, 9))))
        block = AuditBatch()
        for one in times:
            who = {"who": f"p{rng.randrange(3)}", "tenant": "t"}
            row = [one, block.asker(who), f"c{len(told)}", f"d{number % 4}", "dji", "open", "succeeded", one + 5]
            block.told.append(row if rng.random() < 0.7 else {"at": one, "kind": "cancel", "device": row[3], **who})
        part = block.things()
        body = part[0] if len(part) == 1 else {"askers": block.askers, "told": block.told}
        await audit.append(kept(chain.append(json.dumps(body, separators=(",", ":")).encode())), number)
        told += part
    newest = sorted((one["at"] for one in told), reverse=True)
    assert [json.loads(one.body)["at"] for one in await all_pages(audit, AuditQuery(limit=limit))] == newest
    for name in ("p0", "nobody"):
        found = await all_pages(audit, AuditQuery(who=name, device="d1", tenant="t", since_us=12_000_000, limit=limit))
        asked = [one for one in told if (one["who"], one["device"]) == (name, "d1") and one["at"] >= 12_000_000]
        assert sorted(one.body for one in found) == sorted(orjson.dumps(one) for one in asked)
    assert not (await verify(audit)).faults


async def test_old_lines_are_removed_from_the_beginning_of_each_chain(directory: AccessDirectory) -> None:
    audit = directory.audit
    assert isinstance(audit, SqlAudit)
    audit.most_removed = 3
    heads = await written(directory)
    before = lines(await audit.read(("", 0), 99))
    who = Author(principal="boss", at_us=99)
    assert [await audit.remove(5, who) for _ in range(3)] == [3, 3, 0]
    left = [line for line in before if columns_of(line.body).at_us >= 5 or line.writer == DIRECTORY]
    found = [line for line in lines(await audit.read(("", 0), 99)) if line.writer != REMOVALS]
    assert found == left
    told = [json.loads(line.body) for line in lines(await audit.read((REMOVALS, 0), 9))]
    assert [(one["kind"], one["who"], one["lines"]) for one in told] == [("removed", "boss", 3)] * 2
    assert not (await verify(audit, heads)).faults
    # A chain that is gone is known by where it ended, and the directory's goes on.
    while await audit.remove(1_000, who):
        pass
    assert {line.writer for line in lines(await audit.read(("", 0), 99))} == {DIRECTORY, REMOVALS}
    await directory.apply([Put(PLAIN_DEVICE)], author=who)
    assert not (await verify(audit, heads)).faults
    assert {head.writer for head, _ in await audit.heads()} == {DIRECTORY, REMOVALS}


async def test_what_is_removed_past_the_program_is_found_after_a_removal_too(
    directory: AccessDirectory, place: Database
) -> None:
    heads = await written(directory)
    await directory.audit.remove(5, Author(at_us=99))
    for statement in (
        "DELETE FROM audit WHERE writer = 'node-1/a' AND at_us < 7",
        "DELETE FROM audit WHERE writer = 'removals'",
        "UPDATE audit SET hash = body WHERE writer = 'node-1/a' AND at_us = 6",
    ):
        place.execute("CREATE TABLE kept AS SELECT * FROM audit")
        place.execute(statement)
        assert (await verify(directory.audit, heads)).faults, statement
        place.execute("DELETE FROM audit")
        place.execute("INSERT INTO audit SELECT * FROM kept")
        place.execute("DROP TABLE kept")
    assert not (await verify(directory.audit, heads)).faults


async def test_writers_that_were_swapped_are_found_without_any_head(
    directory: AccessDirectory, place: Database
) -> None:
    """The first hash of a chain is made of the writer's name."""
    await written(directory)
    place.execute("DELETE FROM audit_heads")
    assert not (await verify(directory.audit)).faults
    place.execute("UPDATE audit SET writer = 'x' WHERE writer = 'node-1/a'")
    place.execute("UPDATE audit SET writer = 'node-1/a' WHERE writer = 'node-2/b'")
    place.execute("UPDATE audit SET writer = 'node-2/b' WHERE writer = 'x'")
    found = (await verify(directory.audit)).faults
    assert {(one.writer, one.seq, one.what) for one in found} >= {
        (writer, 1, "the line, or one before it, is not what was written") for writer in WRITERS
    }


async def test_a_change_of_the_directory_is_on_record_in_its_transaction(directory: AccessDirectory) -> None:
    author = Author(principal="boss", key="2F7QW9ZD", at_us=7)
    await directory.apply(ALL, author=author)
    await directory.apply([Put(PLAIN_DEVICE)])
    with pytest.raises(EntryConflictError):
        await directory.apply([Put(replace(KEY, id="Z", digest=None, principal_id="nobody"))], author=author)
    await directory.apply([Put(PLAIN_DEVICE)], author=author)
    found = lines(await directory.audit.read(("", 0), 99))
    assert [(one.writer, one.seq) for one in found] == [(DIRECTORY, 1), (DIRECTORY, 3)]
    told = json.loads(found[0].body)
    assert (told["who"], told["version"], len(told["changes"])) == ("boss", 1, len(ALL))
    assert not (await verify(directory.audit)).faults


async def written(directory: AccessDirectory) -> list[ChainHead]:
    """Two nodes and the directory; what their logs say."""
    await directory.apply(ALL, author=Author(at_us=1))
    chains = {writer: Chain(writer) for writer in WRITERS}
    for number in range(12):
        chain = chains[WRITERS[number % 2]]
        line = chain.append(body_of("command", number, {"device": f"d{number}"}))
        await directory.audit.append(kept(line), number)
        if number % 5 == 4:
            seen = [[*head[:2], head.hash.hex()] for head, _ in await directory.audit.heads()]
            await directory.audit.append(kept(chain.append(body_of("seen", number, {"seen": seen}))), number)
    return [chain.head for chain in chains.values()]


TAMPERINGS = (
    "UPDATE audit SET body = {blob} WHERE writer = '{writer}' AND seq = {seq}",
    "UPDATE audit SET hash = {blob} WHERE writer = '{writer}' AND seq = {seq}",
    "UPDATE audit SET device = 'another' WHERE writer = '{writer}' AND seq = {seq}",
    "UPDATE audit SET at_us = at_us + 1 WHERE writer = '{writer}' AND seq = {seq}",
    "UPDATE audit SET seq = seq + 100 WHERE writer = '{writer}' AND seq = {seq}",
    "UPDATE audit SET writer = 'other' WHERE writer = '{writer}' AND seq = {seq}",
    "DELETE FROM audit WHERE writer = '{writer}' AND seq = {seq}",
    "DELETE FROM audit WHERE writer = '{writer}' AND seq >= {seq}",
    "DELETE FROM audit WHERE writer = '{writer}'",
)


async def test_what_is_done_past_the_program_is_found(directory: AccessDirectory, place: Database) -> None:
    heads = await written(directory)
    assert not (await verify(directory.audit, heads)).faults
    blob = "decode('00', 'hex')" if place.url.startswith("postgresql") else "x'00'"
    backup, restore = "CREATE TABLE kept AS SELECT * FROM audit", "INSERT INTO audit SELECT * FROM kept"
    place.execute(backup)
    rng = random.Random(7)
    for statement in TAMPERINGS:
        for _ in range(2):
            place.execute(statement.format(blob=blob, writer=rng.choice(WRITERS), seq=rng.randint(1, 6)))
            assert (await verify(directory.audit, heads)).faults, statement
            place.execute("DELETE FROM audit")
            place.execute(restore)
    assert not (await verify(directory.audit, heads)).faults
    # Heads are told in three places: without the row of the database, what others have seen and the logs remain.
    place.execute("DELETE FROM audit WHERE writer = 'node-2/b'")
    place.execute("DELETE FROM audit_heads")
    assert (await verify(directory.audit)).faults
