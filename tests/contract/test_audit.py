"""The audit in every database: what is kept, found again, and what is done to it past the program."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.access.verification import verify
from app.core.access.changes import Put
from app.core.audit import DIRECTORY, Author, Chain, Head, Line, body_of, columns_of
from app.core.errors import EntryConflictError
from app.store.audit import AuditQuery, AuditStore, Kept, Place
from app.store.directory import AccessDirectory
from tests.contract.directory_places import ALL, KEY, PLAIN_DEVICE
from tests.contract.directory_places import Place as Database

WRITERS = ("node-1/a", "node-2/b")


@pytest.fixture
def audit(directory: AccessDirectory) -> AuditStore:
    return directory.audit


def lines_of(writer: str, count: int) -> list[Line]:
    chain = Chain(writer)
    return [
        chain.append(
            body_of("command", number, {"who": f"p{number % 3}", "device": f"d{number % 2}", "tenant": writer})
        )
        for number in range(count)
    ]


def kept(*written: Line) -> list[Kept]:
    return [Kept(line, columns_of(line.body)) for line in written]


def lines(found: Sequence[Kept]) -> list[Line]:
    return [one.line for one in found]


async def test_lines_are_kept_byte_by_byte_and_once(audit: AuditStore) -> None:
    written = lines_of("w", 5)
    await audit.append(kept(*written[:3]), 3)
    await audit.append(kept(*written[1:]), 5)
    await audit.append(kept(*written), 5)
    await audit.append([], 5)
    assert lines(await audit.read(("", 0), 99)) == written
    assert await audit.heads() == [(Head("w", 5, written[-1].hash), 5)]


async def test_pages_go_from_the_newest_line_backwards(audit: AuditStore) -> None:
    one, other = lines_of("a", 10), lines_of("b", 10)
    await audit.append(kept(*one), 10)
    await audit.append(kept(*other), 10)
    newest = sorted([*one, *other], key=lambda line: (line.seq, line.writer), reverse=True)
    found: list[Line] = []
    before = None
    while page := await audit.page(AuditQuery(before=before, limit=3)):
        found += lines(page)
        before = Place(page[-1].columns.at_us, page[-1].line.writer, page[-1].line.seq)
    assert found == newest
    assert len(await audit.page(AuditQuery(who="p1", device="d0", tenant="a"))) == 1
    assert len(await audit.page(AuditQuery(since_us=8))) == 4


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


async def written(directory: AccessDirectory) -> list[Head]:
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
