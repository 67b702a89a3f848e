"""Logging in with a password, for a key, and out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pwdlib.hashers.argon2 import Argon2Hasher
from pydantic import JsonValue

from app.access.login.logins import MOST_LOGINS
from app.access.login.passwords import Passwords
from app.core.access.changes import Put
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.core.errors import DirectoryUnavailableError
from app.core.peers import network_of
from tests.api.rig import Rig
from tests.api.test_access import Site, guarded

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a hash is the subject of tests/unit/access/login/test_passwords.py alone."""
    cheap = partial(Argon2Hasher, time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr("app.access.login.passwords.Argon2Hasher", cheap)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        await with_people(site)
        yield site


async def with_people(site: Site) -> None:
    """Put two people called ann on record, of no tenant and of one."""
    passwords = Passwords()
    hashed = await passwords.hash(PASSWORD)
    passwords.close()
    for name, tenant in (("ann", None), ("air/ann", "air")):
        person = Principal(id=name, tenant_id=tenant, kind=Kind.USER, name="ann", password_hash=hashed)
        await site.change(
            Put(person), Put(Binding(id=name, subject=name, role="operator", tenant_id=tenant or "ground"))
        )


async def log_in(site: Site, name: str = "ann", password: str = PASSWORD, **more: Any) -> httpx.Response:
    return await site.rig.http.post("/v1/login", json={"name": name, "password": password, **more})


async def log_out(site: Site, key: str) -> httpx.Response:
    return await site.rig.http.delete("/v1/login", headers={"Authorization": f"Bearer {key}"})


async def who(site: Site, key: str) -> httpx.Response:
    return await site.rig.http.get("/v1/me", headers={"Authorization": f"Bearer {key}"})


async def logins_on_record(site: Site) -> list[Credential]:
    return [one for one in (await site.directory.read()).credentials if one.scheme is Scheme.LOGIN]


async def person(site: Site, identity: str) -> Principal:
    return next(one for one in (await site.directory.read()).principals if one.id == identity)


async def test_a_password_gives_a_key_that_counts_at_once_and_until_its_owner_logs_out(site: Site) -> None:
    given = await log_in(site)
    assert given.status_code == 201
    assert given.headers["cache-control"] == "no-store"
    login = given.json()
    me = (await who(site, login["key"])).json()
    assert (me["principal"], me["tenant"], me["key"], me["expires_at"]) == (
        login["principal"],
        login["tenant"],
        login["id"],
        login["expires_at"],
    )
    assert (me["principal"], me["tenant"]) == ("ann", None)
    (kept,) = await logins_on_record(site)
    assert kept.expires_us == kept.created_us + 12 * 3_600_000_000
    assert (await log_out(site, login["key"])).status_code == 204
    assert "revoked" in (await who(site, login["key"])).json()["detail"]


async def test_a_name_is_of_a_tenant_or_of_none_and_an_id_of_all(site: Site) -> None:
    for members, principal in (
        ({"name": "ann"}, "ann"),
        ({"name": "ann", "tenant": "air"}, "air/ann"),
        ({"name": "air/ann"}, "air/ann"),
        ({"name": "air/ann", "tenant": "air"}, "air/ann"),
    ):
        assert (await log_in(site, **members)).json()["principal"] == principal
    assert (await log_in(site, "ann", tenant="ground")).status_code == 401


async def test_what_is_wrong_is_not_told(site: Site) -> None:
    disabled = replace(await person(site, "ann"), id="bob", name="bob", disabled_us=1)
    await site.change(Put(disabled), Put(replace(disabled, id="eve", name="eve", disabled_us=None, password_hash=None)))
    told = [
        await log_in(site, "ann", "a wrong password"),
        await log_in(site, "nobody"),
        await log_in(site, "bob"),
        await log_in(site, "eve"),
        await log_in(site, "boss"),
    ]
    assert {(one.status_code, one.text) for one in told} == {(401, told[0].text)}
    assert told[0].json()["detail"] == "name or password is wrong"
    assert await logins_on_record(site) == []
    assert site.rig.counters["login.refused"] == len(told)


def stop_time(site: Site) -> None:
    """No attempt comes back while somebody tries, however busy the machine is."""
    logins: Any = site.rig.application.ports.logins
    now = logins._clock.wall()
    logins._clock = SimpleNamespace(wall=lambda: now)


async def test_after_five_attempts_with_a_name_there_is_a_pause(site: Site) -> None:
    stop_time(site)
    statuses = [(await log_in(site, "ann", f"a wrong password {number}")).status_code for number in range(5)]
    assert statuses == [401] * 5
    refused = await log_in(site)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 12
    assert (await log_in(site, "air/ann")).status_code == 201


async def test_a_person_has_one_number_of_attempts_however_they_are_named(site: Site) -> None:
    stop_time(site)
    for known, own in (("ann", "air"), ("eve", "air")):  # what there is not is counted as what there is
        names = [(f"air/{known}", None), (f"air/{known}", own), (known, own)] * 2
        answers = [await log_in(site, name, "a wrong password", tenant=tenant) for name, tenant in names]
        assert [one.status_code for one in answers] == [401] * 5 + [429], known
    assert (await log_in(site, "ann")).status_code == 201


async def test_an_address_has_so_many_attempts_with_whatever_names(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"logins": 7}) as site:
        stop_time(site)
        told = [await log_in(site, f"made up {number}", "a wrong password") for number in range(8)]
        assert [one.status_code for one in told] == [401] * 7 + [429]
        assert told[-1].json()["detail"] == "too many attempts from this address"
        assert 0 < int(told[-1].headers["retry-after"]) <= 9
        assert site.rig.counters["login.limited"] == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.200.3.4", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "::ffff:127.0.0.9", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("nonsense", "127.0.0.1", False),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, *, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


async def test_a_new_password_ends_what_the_old_one_gave(site: Site) -> None:
    key = (await log_in(site)).json()["key"]
    (kept,) = await logins_on_record(site)
    await site.change(Put(replace(await person(site, "ann"), not_before_us=kept.created_us + 1)))
    assert "revoked" in (await who(site, key)).json()["detail"]
    assert (await who(site, (await log_in(site)).json()["key"])).status_code == 200


async def test_who_was_put_on_record_a_moment_ago_logs_in(tmp_path: Path) -> None:
    """The verbs write to the directory, which a node that nobody asks reads at intervals alone."""
    async with guarded(tmp_path, {"refresh": "1m"}) as site:
        passwords = Passwords()
        bob = Principal(
            id="bob", tenant_id=None, kind=Kind.USER, name="bob", password_hash=await passwords.hash(PASSWORD)
        )
        await site.directory.apply([Put(bob)])
        assert (await log_in(site, "bob")).status_code == 201
        other = replace(bob, password_hash=await passwords.hash(f"another {PASSWORD}"))
        passwords.close()
        await site.directory.apply([Put(other)])
        assert (await log_in(site, "bob")).status_code == 401
        assert (await log_in(site, "bob", f"another {PASSWORD}")).status_code == 201


async def test_a_password_that_was_changed_a_moment_ago_gives_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, before = await person(site, "ann"), await site.directory.read()
    apply = site.directory.apply

    async def unchanged() -> int:
        return before.version

    async def apply_and_see(*changes: Any, **expected: Any) -> int:
        monkeypatch.undo()
        return await apply(*changes, **expected)

    monkeypatch.setattr(site.directory, "version", unchanged)  # this node has not looked yet
    await apply([Put(replace(ann, password_hash="$argon2id$another"))])
    monkeypatch.setattr(site.directory, "apply", apply_and_see)
    assert (await log_in(site)).status_code == 401
    assert await logins_on_record(site) == []


async def test_logins_that_count_no_more_or_are_too_many_go(site: Site) -> None:
    ann = await person(site, "ann")
    now_us = (await site.directory.read()).principals[0].created_us or 2**52
    old = [
        Credential(
            id=f"old-{number}",
            principal_id=ann.id,
            scheme=Scheme.LOGIN,
            name="login",
            digest=bytes([number]) * 32,
            created_us=number,
            expires_us=1 if number < 3 else now_us,
        )
        for number in range(1, MOST_LOGINS + 3)
    ]
    await site.change(*map(Put, old))
    assert (await log_in(site)).status_code == 201
    assert len(await logins_on_record(site)) == MOST_LOGINS
    assert "old-3" not in {one.id for one in await logins_on_record(site)}


async def test_several_who_log_in_at_once_all_get_a_key(site: Site) -> None:
    given = await asyncio.gather(*[log_in(site) for _ in range(4)])
    assert [one.status_code for one in given] == [201] * 4
    assert [(await who(site, one.json()["key"])).status_code for one in given] == [200] * 4


async def test_keys_that_no_login_gave_do_not_end_by_logging_out(site: Site) -> None:
    refused = await log_out(site, site.keys["operator"].text)
    assert refused.status_code == 409
    assert (await site.send("operator")).status_code == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "body: is no object"),
        ({"name": "ann"}, "password: is needed"),
        ({"name": "ann", "password": 5}, "password: is needed"),
        ({"name": "", "password": PASSWORD}, "name: is needed"),
        ({"name": "ann", "password": "x" * 257}, "password: is needed, as a text of 1 to 256 characters"),
        ({"name": "ann", "password": PASSWORD, "life": "1h"}, "life: is unknown; allowed: name, password, tenant"),
    ],
)
async def test_what_cannot_be_read_is_refused_without_being_repeated(site: Site, body: JsonValue, said: str) -> None:
    refused = await site.rig.http.post("/v1/login", json=body)
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert PASSWORD not in refused.text


async def test_a_page_cannot_log_in_by_a_form(site: Site) -> None:
    refused = await site.rig.http.post("/v1/login", data={"name": "ann", "password": PASSWORD})
    assert refused.status_code == 415


async def test_while_the_directory_cannot_be_written_nobody_logs_in(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.directory, "apply", away)
    refused = await log_in(site)
    assert refused.status_code == 503
    assert refused.json()["type"] == "urn:homing:problem:access-store-away"


async def test_while_the_directory_is_known_to_be_away_no_name_is_told_from_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.directory, "version", away)
    authority: Any = site.rig.application.ports.access
    with pytest.raises(DirectoryUnavailableError):
        await authority.refresh()
    assert [(await log_in(site, name)).status_code for name in ("ann", "nobody")] == [503, 503]


async def away(*_: object, **__: object) -> None:
    raise DirectoryUnavailableError("the access directory does not answer")


async def test_on_an_open_node_there_is_nothing_to_log_in_to(rig: Rig) -> None:
    refused = await rig.http.post("/v1/login", json={"name": "ann", "password": PASSWORD})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:homing:problem:nothing-to-log-in-to"
    assert (await rig.http.delete("/v1/login")).status_code == 409
