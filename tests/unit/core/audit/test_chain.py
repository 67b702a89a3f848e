"""Chains of the audit: whatever is done to them shows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.changes import Change, Put, Revoke
from app.core.access.keys import make_key
from app.core.access.model import Credential, Kind, Principal, Scheme
from app.core.audit.chain import (
    Author,
    Chain,
    ChainFault,
    ChainHead,
    ChainLine,
    Verifier,
    body_of,
    changes_body,
    heads_of,
    link,
)

WRITERS = ("node-1/a", "node-2/b", "node-3/c")
Lines = list[ChainLine]


def faults(
    lines: Sequence[ChainLine], heads: Sequence[ChainHead], writers: Sequence[str] = WRITERS
) -> list[ChainFault]:
    """As a verification goes: each chain, with the heads that are known, and those that the other chains tell of."""
    told = [*heads, *[head for line in lines for head in heads_of(line.body)]]
    found: list[ChainFault] = []
    for writer in sorted({*writers, *(line.writer for line in lines)}):
        verifier = Verifier(writer, [head for head in told if head.writer == writer])
        for line in (one for one in lines if one.writer == writer):
            found += verifier.read(line)
        found += verifier.end()
    return found


def history(rng: random.Random, length: int = 40) -> tuple[Lines, list[ChainHead]]:
    """Three writers that see each other now and then; the heads that their logs tell."""
    chains = {writer: Chain(writer) for writer in WRITERS}
    lines: Lines = []
    logged: list[ChainHead] = []
    for number in range(length):
        writer = rng.choice(WRITERS)
        if number % 7 == 6:
            seen = [[*one.head[:2], one.head.hash.hex()] for one in chains.values() if one.head.writer != writer]
            lines.append(chains[writer].append(body_of("seen", number, {"seen": seen})))
            logged.append(chains[writer].head)
        else:
            lines.append(chains[writer].append(body_of("command", number, {"who": "ci", "device": f"dock-{number}"})))
    logged += [chain.head for chain in chains.values()]
    return sorted(lines, key=lambda line: (line.writer, line.seq)), logged


def edit(lines: Lines, rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    body = bytearray(lines[at].body)
    body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    lines[at] = lines[at]._replace(body=bytes(body))


def edit_hash(lines: Lines, rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines[at] = lines[at]._replace(hash=rng.randbytes(32))


def remove(lines: Lines, rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]


def insert(lines: Lines, rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines.insert(at, lines[at]._replace(body=b'{"kind":"command"}'))


def reorder(lines: Lines, rng: random.Random) -> None:
    one, other = rng.sample(range(len(lines)), 2)
    a, b = lines[one], lines[other]
    lines[one], lines[other] = a._replace(body=b.body, hash=b.hash), b._replace(body=a.body, hash=a.hash)


def cut(lines: Lines, rng: random.Random) -> None:
    """The tail of one chain, and the lines about it in the others are left."""
    writer = rng.choice([line.writer for line in lines])
    own = [line for line in lines if line.writer == writer]
    for line in own[rng.randrange(len(own)) :]:
        lines.remove(line)


def swap_writers(lines: Lines, rng: random.Random) -> None:
    one, other = rng.sample(sorted({line.writer for line in lines}), 2)
    names = {one: other, other: one}
    lines[:] = [line._replace(writer=names.get(line.writer, line.writer)) for line in lines]


def fork(lines: Lines, rng: random.Random) -> None:
    """Another line at some place, and all hashes after it made to fit: what only a head can show."""
    writer = rng.choice([line.writer for line in lines])
    own = [number for number, line in enumerate(lines) if line.writer == writer]
    start = rng.randrange(len(own))
    previous = Chain(writer).head.hash if start == 0 else lines[own[start - 1]].hash
    for number in own[start:]:
        body = b'{"at":0,"kind":"command"}' if number == own[start] else lines[number].body
        previous = link(previous, lines[number].seq, body)
        lines[number] = lines[number]._replace(body=body, hash=previous)


TAMPERINGS: tuple[Callable[[Lines, random.Random], None], ...] = (
    edit,
    edit_hash,
    remove,
    insert,
    reorder,
    cut,
    swap_writers,
    fork,
)


@pytest.mark.parametrize("seed", range(125))
def test_what_is_done_to_the_lines_is_found(seed: int) -> None:
    rng = random.Random(seed)
    for tamper in TAMPERINGS:
        lines, logged = history(rng)
        assert faults(lines, logged) == []
        before = list(lines)
        tamper(lines, rng)
        if lines != before:
            assert faults(lines, logged), tamper.__name__


def test_a_chain_that_was_written_anew_is_found_by_what_the_others_have_seen() -> None:
    rng = random.Random(1)
    found = 0
    for _ in range(200):
        lines, _ = history(rng)
        fork(lines, rng)
        found += bool(faults(lines, ()))
    assert found > 100  # without the logs only what was seen is safe


@given(bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=20), data=st.data())
def test_any_list_of_bodies_that_is_another_one_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    chain = Chain("w")
    lines = [chain.append(body) for body in bodies]
    other = data.draw(st.permutations(lines) | st.lists(st.sampled_from(lines), max_size=20))
    assert (faults(other, [chain.head], ["w"]) == []) is (other == lines)


def test_the_directory_counts_in_versions() -> None:
    chain = Chain("directory")
    lines = [chain.append(b"{}", seq) for seq in (3, 4, 9)]
    assert faults(lines, [chain.head], ["directory"]) == []
    assert faults(lines[:2], [chain.head], ["directory"])
    assert faults([lines[0], lines[2]], [chain.head], ["directory"])


def test_a_change_is_told_without_secrets() -> None:
    key = make_key(lambda count: b"\7" * count)
    credential = Credential(
        id=key.id, principal_id="ci", scheme=Scheme.KEY, name="", digest=key.digest, created_us=0, narrow=("x",)
    )
    person = Principal(id="ann", tenant_id="air", kind=Kind.USER, name="ann", password_hash="$argon2id$secret")
    changes: list[Change] = [Put(credential), Put(person), Revoke(credential_id=key.id, at_us=7)]
    body = changes_body(changes, 5, Author(principal="boss", key="2F7QW9ZD", agent="x" * 999, at_us=9))
    told = json.loads(body)
    assert (told["at"], told["version"], told["who"], len(told["agent"])) == (9, 5, "boss", 256)
    assert [one["what"] for one in told["changes"]] == [
        f"credential '{key.id}'",
        "principal 'ann'",
        f"credential '{key.id}'",
    ]
    assert told["changes"][1]["to"] == {"tenant": "air", "disabled": False, "password": True}
    for secret in (key.secret, key.digest.hex(), "argon2id"):
        assert secret.encode() not in body
    assert json.loads(changes_body([*changes] * 50, 5, Author()))["more"] == 50


def test_what_no_writer_makes_tells_of_no_heads() -> None:
    for body in (
        b"",
        b"[]",
        b'{"kind":"seen"}',
        b'{"kind":"seen","seen":[[1]]}',
        b'{"kind":"seen","seen":[["a",1,"zz"]]}',
    ):
        assert list(heads_of(body)) == []
