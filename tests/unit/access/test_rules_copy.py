"""Copies of the access directory say what it said, to those who know the password, for as long as it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest
from hypothesis import given

from app.access.rules_copy import AGAIN_SECONDS, RulesCopier, RulesCopy, body_of, read, signed_copy, written
from app.core.access.model import Device, Document, Kind, Principal
from tests.unit.core.access.documents import DOCUMENTS

LIFE = timedelta(hours=24)
PASSWORD = "of the database"
DOCUMENT = Document(
    cluster_id="c",
    version=7,
    principals=(
        Principal(
            id="ann",
            tenant_id=None,
            kind=Kind.USER,
            name="Ann",
            email="ann@example.com",
            password_hash="$argon2id",
        ),
    ),
    devices=(Device(id="dock-1", tenant_id="t", labels=MappingProxyType({"site": "roof"})),),
)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


class Store:
    """The store that nodes share."""

    def __init__(self) -> None:
        self.copy: tuple[int, int, bytes] | None = None
        self.writes = 0

    async def keep(self, version: int, at_us: int, copy: bytes, life: timedelta) -> None:
        assert life == LIFE
        self.copy = version, at_us, copy
        self.writes += 1

    async def kept(self) -> tuple[int, int] | None:
        return None if self.copy is None else self.copy[:2]

    async def read(self) -> bytes | None:
        return None if self.copy is None else self.copy[2]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def copying(store: Store, clock: Clock, password: str = PASSWORD) -> RulesCopier:
    return RulesCopier(store, password, clock, LIFE)


@given(DOCUMENTS)
def test_a_copy_says_what_the_directory_says(document: Document) -> None:
    assert read(written(RulesCopy(document, 5))) == RulesCopy(document, 5)


def test_neither_hashes_of_passwords_nor_addresses_are_in_it() -> None:
    body = written(RulesCopy(DOCUMENT, 5))
    assert b"argon2id" not in body
    assert b"ann@example.com" not in body
    (person,) = DOCUMENT.principals
    assert read(body) == RulesCopy(replace(DOCUMENT, principals=(replace(person, email=None, password_hash=None),)), 5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"format":2,"at":1,"document":{}}',
        b'{"format":1,"at":1,"document":{"cluster_id":"c","version":1,"tenants":[{"id":"t","color":"red"}]}}',
        b'{"format":1,"at":1,"document":{"cluster_id":"c","version":1,"tenants":[5]}}',
    ],
)
def test_what_another_version_has_written_is_no_copy(body: bytes) -> None:
    assert read(body) is None


def test_what_was_changed_is_no_copy() -> None:
    signed = signed_copy(b"key", b"body")
    assert body_of(b"key", signed) == b"body"
    assert body_of(b"another", signed) is None
    for place in range(len(signed)):
        assert body_of(b"key", signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :]) is None
        assert body_of(b"key", signed[:place]) is None


async def test_it_is_found_by_who_has_the_same_password_until_it_is_too_old(store: Store, clock: Clock) -> None:
    assert await copying(store, clock).find() is None
    await copying(store, clock).keep(DOCUMENT, 10.0)
    found = await copying(store, clock).find()
    assert found is not None
    assert (found.document.version, copying(store, clock).age(found)) == (7, 10.0)
    assert await copying(store, clock, "another").find() is None
    clock.seconds += 86_389
    assert await copying(store, clock).find() is not None
    clock.seconds += 2
    assert await copying(store, clock).find() is None


async def test_one_node_keeps_it_and_says_again_that_it_holds(store: Store, clock: Clock) -> None:
    for _ in range(3):
        await copying(store, clock).keep(DOCUMENT, 0.0)
    assert store.writes == 1
    await copying(store, clock).keep(replace(DOCUMENT, version=8), 0.0)
    assert store.writes == 2
    clock.seconds += AGAIN_SECONDS
    await copying(store, clock).keep(replace(DOCUMENT, version=8), 0.0)
    assert store.writes == 3
