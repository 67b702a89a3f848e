"""Generated documents of the directory, each put in the place of the one before: what is told, made and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.api.test_access import Site, guarded
from tests.api.test_administration import ask

DOCUMENTS: Final = 50
"""The documents of the test; docs/performance.md has what came of ten times as many."""
Json = dict[str, Any]

_ACTIONS: Final = ("allow send", "deny send", "allow read", "allow *", "require 2 send")
_IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    "tenants": ("id",),
    "principals": ("id",),
    "roles": ("name", "tenant"),
    "bindings": ("id",),
    "devices": ("id",),
}
"""The members that tell an entry of a section from all others, in the order of the sections."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


def some(chance: Random, prefix: str) -> list[str]:
    """A few names; many of them are the same in the next document."""
    return [f"{prefix}{number}" for number in range(4) if chance.random() < 0.6]


def made_up(chance: Random, base: Json) -> Json:
    """The document that the site began with, and more."""
    tenants = [{"id": one, "name": chance.choice([one, "é"]), "devices": [f"{one}-*"]} for one in some(chance, "gt")]
    owners = [None, *(one["id"] for one in tenants)]
    principals = [
        {
            "id": one,
            "name": one,
            "kind": chance.choice(["service", "user"]),
            "tenant": chance.choice(owners),
            "email": chance.choice([None, "a@example.org"]),
            "disabled": chance.random() < 0.2,
        }
        for one in some(chance, "gp")
    ]
    roles = [
        {
            "name": one,
            "tenant": owner,
            "rules": [
                f"{chance.choice(_ACTIONS)} *:cover_{number} on {chance.choice(['*', 'gt1-*'])}"
                for number in range(chance.randrange(3))
            ],
        }
        for one in some(chance, "gr")
        for owner in chance.sample(owners, k=1)
    ]
    bindings = [
        {
            "id": one,
            "subject": chance.choice(["group:night", *(one["id"] for one in principals)]),
            "role": role,
            "tenant": tenant,
            "devices": chance.choice([["*"], ["gt1-*", "gt2-1"]]),
            "expires": chance.choice([None, "2030-01-01T00:00:00Z", "2031-06-01T12:00:00.000001Z"]),
        }
        for one in some(chance, "gb")
        for role, tenant in [chance.choice([("viewer", None), *((one["name"], one["tenant"]) for one in roles)])]
    ]
    devices = [
        {
            "id": one,
            "tenant": chance.choice(owners[1:]),
            "profile": chance.choice([None, "dji"]),
            "labels": chance.choice([{}, {"site": "roof"}]),
            "note": chance.choice(["", "by the door"]),
        }
        for one in (some(chance, "gd-") if tenants else [])
    ]
    more: dict[str, list[Json]] = {
        "tenants": tenants,
        "principals": principals,
        "roles": roles,
        "bindings": bindings,
        "devices": devices,
    }
    return {section: [*base[section], *more[section]] for section in _IDENTITY}


def entries(document: Json, section: str) -> dict[tuple[str | None, ...], Json]:
    return {tuple(one[name] for name in _IDENTITY[section]): one for one in document[section]}


def expected(before: Json, after: Json) -> list[str]:
    """The lines of what comes, goes and changes, as another program would find them."""
    lines = []
    for section in _IDENTITY:
        old, new = entries(before, section), entries(after, section)
        for key in sorted(old.keys() | new.keys(), key=lambda key: (key[0], str(key[1:] and key[1]))):
            if old.get(key) != new.get(key):
                sign = "+" if key not in old else "-" if key not in new else "~"
                of = f" of tenant {key[1]!r}" if len(key) > 1 and key[1] is not None else ""
                lines.append(f"{sign} {section[:-1]} {key[0]!r}{of}")
    return lines


async def test_documents_are_told_made_once_and_not_on_what_has_changed_since(site: Site) -> None:
    chance = Random(10)
    answer = await ask(site, "boss", "GET", "/access")
    base, told = answer.json(), 0
    current, tag = base, answer.headers["etag"]
    for _ in range(DOCUMENTS):
        wanted = made_up(chance, base)
        fresh, lines = {"If-Match": tag}, expected(current, wanted)
        dry = await ask(site, "boss", "PUT", "/access?dry_run=true", wanted, headers=fresh)
        assert (dry.status_code, dry.json()) == (200, {"changes": lines}), dry.text
        put = await ask(site, "boss", "PUT", "/access", wanted, headers=fresh)
        assert (put.status_code, put.json()) == (200, {"changes": lines}), put.text
        if lines:
            assert (await ask(site, "boss", "PUT", "/access", base, headers=fresh)).status_code == 412
        assert (await ask(site, "boss", "PUT", "/access", wanted)).json() == {"changes": []}
        answer = await ask(site, "boss", "GET", "/access")
        current, tag = answer.json(), answer.headers["etag"]
        assert expected(current, wanted) == []
        told += len(lines)
    assert told > DOCUMENTS
