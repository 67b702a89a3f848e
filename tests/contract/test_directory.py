"""The promises of every access directory, whatever database keeps it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import pytest

from app.core.access.changes import Change, Put, Remove, Revoke
from app.core.access.model import Binding, Credential, Device, Document, Kind, Principal, Role, Scheme, Tenant
from app.core.access.plan import plan
from app.core.errors import (
    EntryConflictError,
    EntryNotFoundError,
    InvalidInputError,
    VersionConflictError,
)
from app.store.directory import AccessDirectory
from tests.contract.directory_places import (
    ALL,
    BINDING,
    DEVICE,
    GROUP_BINDING,
    IDENTITY,
    KEY,
    OPERATOR,
    PERSON,
    PLAIN_DEVICE,
    ROLE,
    SHARED_ROLE,
    TENANT,
    Place,
)

FULL = Document(
    cluster_id="cluster-1",
    version=1,
    tenants=(TENANT,),
    principals=(PERSON, OPERATOR),
    credentials=(KEY, IDENTITY),
    roles=(SHARED_ROLE, ROLE),
    bindings=(BINDING, GROUP_BINDING),
    devices=(DEVICE, PLAIN_DEVICE),
)


async def test_a_new_one_is_empty(directory: AccessDirectory) -> None:
    assert await directory.read() == Document(cluster_id="cluster-1", version=0)
    assert await directory.version() == 0


async def test_what_is_put_is_read_as_it_was_in_every_field(directory: AccessDirectory) -> None:
    assert await directory.apply(ALL) == 1
    assert await directory.read() == FULL


async def test_another_node_reads_the_same(directory: AccessDirectory, place: Place) -> None:
    await directory.apply(ALL)
    other = place.open(cluster_id="another")
    await other.start()
    assert await other.read() == FULL


async def test_putting_again_replaces_and_makes_a_version(directory: AccessDirectory) -> None:
    await directory.apply(ALL)
    role = replace(ROLE, rules=("deny send *:* on *",))
    device = replace(DEVICE, labels={}, profile=None)
    assert await directory.apply([Put(role), Put(device)]) == 2
    assert await directory.read() == replace(FULL, version=2, roles=(SHARED_ROLE, role), devices=(device, PLAIN_DEVICE))


async def test_all_of_it_can_be_removed(directory: AccessDirectory) -> None:
    await directory.apply(ALL)
    removals = [
        Remove(kind=type(put.entry), id=put.entry.name, tenant_id=put.entry.tenant_id)
        if isinstance(put.entry, Role)
        else Remove(kind=type(put.entry), id=put.entry.id)
        for put in reversed(ALL)
    ]
    assert await directory.apply(removals) == 2
    assert await directory.read() == Document(cluster_id="cluster-1", version=2)


async def test_no_changes_make_no_version(directory: AccessDirectory) -> None:
    await directory.apply(ALL)
    assert await directory.apply([]) == 1
    assert await directory.apply([], expected_version=1) == 1
    with pytest.raises(VersionConflictError):
        await directory.apply([], expected_version=0)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ([Remove(kind=Tenant, id="south")], EntryNotFoundError, "tenant 'south' is not on record"),
        ([Remove(kind=Role, id="pilot", tenant_id="x")], EntryNotFoundError, "role 'pilot' of tenant 'x' is not on"),
        ([Revoke(credential_id="none", at_us=1)], EntryNotFoundError, "credential 'none' is not on record"),
        ([Remove(kind=Tenant, id="north")], EntryConflictError, "tenant 'north': is still named by others"),
        ([Remove(kind=Principal, id="01J-ann")], EntryConflictError, "principal '01J-ann': is still named"),
        ([Put(replace(DEVICE, tenant_id="south"))], EntryConflictError, "device 'dock-1': names what is not"),
        ([Put(replace(PERSON, tenant_id="south"))], EntryConflictError, "principal '01J-ann': names what is not"),
        ([Put(replace(KEY, principal_id="x"))], EntryConflictError, "credential '2F7QW9ZD': names what is not"),
        ([Put(replace(BINDING, subject="nobody"))], EntryConflictError, "binding 'b1': names what is not"),
        ([Put(replace(BINDING, tenant_id="south"))], EntryConflictError, "binding 'b1': names what is not"),
        ([Put(replace(ROLE, tenant_id="south"))], EntryConflictError, "role 'pilot' of tenant 'south': names"),
        ([Put(replace(PERSON, id="ann2"))], EntryConflictError, "principal 'ann2': its name is taken"),
        ([Put(replace(OPERATOR, id="root2"))], EntryConflictError, "principal 'root2': its name is taken"),
        ([Put(replace(KEY, id="other"))], EntryConflictError, "credential 'other': its digest"),
        ([Put(replace(IDENTITY, id="other"))], EntryConflictError, "credential 'other': its digest"),
    ],
)
async def test_a_change_that_cannot_be_made_says_why_and_leaves_nothing_of_its_transaction(
    directory: AccessDirectory, changes: list[Change], error: type[Exception], sentence: str
) -> None:
    await directory.apply(ALL)
    with pytest.raises(error, match=f"^{sentence}"):
        await directory.apply([Put(Tenant(id="before", name="", devices=(), created_us=0)), *changes])
    assert await directory.read() == FULL


async def test_two_tenants_may_have_a_principal_of_the_same_name(directory: AccessDirectory) -> None:
    south = replace(TENANT, id="south")
    assert await directory.apply([*ALL, Put(south), Put(replace(PERSON, id="ann2", tenant_id="south"))]) == 1


async def test_many_credentials_may_be_without_issuer_or_digest(directory: AccessDirectory) -> None:
    keys = [replace(KEY, id=f"k{n}", digest=bytes([n] * 32)) for n in range(3)]
    identities = [replace(IDENTITY, id=f"i{n}", subject=f"s{n}") for n in range(3)]
    await directory.apply([*ALL, *map(Put, keys + identities)])
    assert len((await directory.read()).credentials) == 8


class TestRevoking:
    async def test_the_first_instant_stays(self, directory: AccessDirectory) -> None:
        await directory.apply(ALL)
        assert await directory.apply([Revoke(credential_id=KEY.id, at_us=50)]) == 2
        assert await directory.apply([Revoke(credential_id=KEY.id, at_us=40)]) == 3
        assert (await directory.read()).credentials[0] == replace(KEY, revoked_us=50)

    @pytest.mark.parametrize("again", [KEY, replace(KEY, revoked_us=60)])
    async def test_it_is_final(self, directory: AccessDirectory, again: Credential) -> None:
        await directory.apply([*ALL, Revoke(credential_id=KEY.id, at_us=50)])
        with pytest.raises(EntryConflictError, match=r"^credential '2F7QW9ZD': was revoked, which is final"):
            await directory.apply([Put(again)])

    async def test_a_revoked_one_can_still_be_described(self, directory: AccessDirectory) -> None:
        await directory.apply([*ALL, Revoke(credential_id=KEY.id, at_us=50)])
        renamed = replace(KEY, name="stolen laptop", revoked_us=50)
        await directory.apply([Put(renamed)])
        assert (await directory.read()).credentials[0] == renamed


class TestLastUse:
    async def test_it_makes_no_version_and_only_grows(self, directory: AccessDirectory) -> None:
        await directory.apply(ALL)
        await directory.touch({KEY.id: 2_000_000_000_000_000, IDENTITY.id: 20, "unknown": 30})
        await directory.touch({KEY.id: 1_900_000_000_000_000, IDENTITY.id: 21})
        await directory.touch({})
        found = await directory.read()
        assert found.version == 1
        assert [one.last_used_us for one in found.credentials] == [2_000_000_000_000_000, 21]

    async def test_putting_a_credential_does_not_turn_it_back(self, directory: AccessDirectory) -> None:
        await directory.apply(ALL)
        await directory.touch({IDENTITY.id: 20})
        await directory.apply([Put(replace(IDENTITY, name="renamed"))])
        assert (await directory.read()).credentials[1] == replace(IDENTITY, name="renamed", last_used_us=20)

    async def test_two_nodes_that_note_the_same_ones_while_a_third_changes_them_do_not_block_each_other(
        self, directory: AccessDirectory, place: Place
    ) -> None:
        keys = [replace(KEY, id=f"k{n:02}", digest=bytes([n] * 32)) for n in range(30)]
        await directory.apply([Put(TENANT), Put(PERSON), *map(Put, keys)])
        up, down = [key.id for key in keys], [key.id for key in reversed(keys)]
        one, two = place.open(), place.open()
        for turn in range(8):
            await asyncio.gather(
                one.touch(dict.fromkeys(up, 10 * turn + 1)),
                two.touch(dict.fromkeys(down, 10 * turn + 2)),
                directory.apply([Put(key) for key in reversed(keys)]),
            )


HOSTILE = [
    "'; DROP TABLE principals; --",
    '"]}\\u0000\\n',
    "%s %(id)s :id ? $1 {0}",
    "\x01\x1b[2J\r\n\t\x7f",
    "\u202e\u200b\ufeff\ufffe",
    "e\u0301 é \U0001f681 \U0010ffff",
    "null",
    " ",
    "x" * 5000,
]


def filled_with(text: str) -> list[Put]:
    """An entry of each kind with this text wherever there may be text."""
    return [
        Put(Tenant(id=text, name=text, devices=(text, text), created_us=0)),
        Put(
            Principal(
                id=text,
                tenant_id=text,
                kind=Kind.USER,
                name=text,
                email=text,
                password_hash=text,
                created_us=0,
            )
        ),
        Put(
            Credential(
                id=text,
                principal_id=text,
                scheme=Scheme.OIDC,
                name=text,
                digest=text.encode(),
                issuer=text,
                subject=text,
                narrow=(text,),
                created_us=0,
            )
        ),
        Put(Role(name=text, tenant_id=text, rules=(text, "", text))),
        Put(Binding(id=text, subject=text, role=text, tenant_id=text, devices=(text,))),
        Put(Binding(id=text + "2", subject="group:" + text, role=text, tenant_id=text)),
        Put(Device(id=text, tenant_id=text, profile=text, labels={text: text}, note=text)),
    ]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_text_is_kept_as_it_is_in_every_column(directory: AccessDirectory, text: str) -> None:
    puts = filled_with(text)
    await directory.apply(puts)
    found = await directory.read()
    assert [
        *(*found.tenants, *found.principals, *found.credentials),
        *(*found.roles, *found.bindings, *found.devices),
    ] == [put.entry for put in puts]


@pytest.mark.parametrize(
    ("entry", "field", "sentence"),
    [
        (replace(TENANT, name="a\0b"), "name", "has a NUL character"),
        (replace(DEVICE, note="a\ud800b"), "note", "has half of a surrogate pair"),
        (replace(DEVICE, labels={"\udfff": ""}), "labels", "has half of a surrogate pair"),
        (replace(ROLE, rules=("\ud800",)), "rules", "has half of a surrogate pair"),
        (replace(DEVICE, note="x" * 65_537), "note", "has 65537 characters; allowed: at most 65536"),
        (replace(TENANT, id=""), "id", "is empty"),
        (replace(ROLE, tenant_id=""), "tenant_id", "is empty"),
        (replace(TENANT, created_us=2**63), "created_us", "is 9223372036854775808; allowed"),
        (replace(PERSON, not_before_us=-1), "not_before_us", "is -1; allowed"),
        (replace(PERSON, id="group:x"), "id", "begins with group:"),
    ],
)
async def test_what_some_database_cannot_keep_none_is_given(
    directory: AccessDirectory, entry: Tenant | Principal | Role | Device, field: str, sentence: str
) -> None:
    await directory.apply(ALL)
    with pytest.raises(InvalidInputError, match=sentence) as refused:
        await directory.apply([Put(entry)])
    assert refused.value.field == field
    assert await directory.version() == 1


class TestManyWriters:
    async def test_each_change_has_a_version_of_its_own_and_none_is_lost(
        self, directory: AccessDirectory, place: Place
    ) -> None:
        await directory.apply([Put(TENANT)])
        writers, turns = 4, 6

        async def write(name: int) -> list[int]:
            node = place.open()
            return [await node.apply([Put(Device(id=f"{name}-{turn}", tenant_id="north"))]) for turn in range(turns)]

        versions = await asyncio.gather(*(write(name) for name in range(writers)))
        assert all(own == sorted(own) for own in versions)
        assert sorted(chain.from_iterable(versions)) == list(range(2, 2 + writers * turns))
        found = await directory.read()
        assert found.version == 1 + writers * turns
        assert len(found.devices) == writers * turns

    async def test_who_decided_on_an_old_version_decides_again(self, directory: AccessDirectory, place: Place) -> None:
        await directory.apply([Put(TENANT), Put(replace(PLAIN_DEVICE, note="0"))])
        writers, turns = 4, 5

        async def count_up() -> None:
            node, done = place.open(), 0
            while done < turns:
                seen = await node.read()
                raised = replace(seen.devices[0], note=str(int(seen.devices[0].note) + 1))
                with suppress(VersionConflictError):
                    await node.apply([Put(raised)], expected_version=seen.version)
                    done += 1

        await asyncio.gather(*(count_up() for _ in range(writers)))
        assert (await directory.read()).devices[0].note == str(writers * turns)

    async def test_a_reader_never_sees_a_part_of_a_change(self, directory: AccessDirectory, place: Place) -> None:
        """Each change writes its number into all devices and one tenant, and takes a role away or brings it back."""
        names = [f"d{n}" for n in range(5)]

        async def write() -> None:
            node = place.open()
            for number in range(1, 13):
                notes = [Put(Device(id=name, tenant_id="north", note=str(number))) for name in names]
                role: Change = Put(ROLE) if number % 2 else Remove(kind=Role, id=ROLE.name, tenant_id=ROLE.tenant_id)
                await node.apply([Put(replace(TENANT, name=str(number))), *notes, role])

        writing = asyncio.create_task(write())
        while not writing.done():
            seen = await directory.read()
            if seen.version:
                assert {one.note for one in seen.devices} == {seen.tenants[0].name} == {str(seen.version)}
                assert len(seen.devices) == len(names)
                assert len(seen.roles) == seen.version % 2
        await writing


@pytest.mark.parametrize("back", [False, True])
async def test_a_plan_can_be_made_in_its_order(directory: AccessDirectory, *, back: bool) -> None:
    """A tenant, a principal and a role go and leave their names to others; a binding changes hands."""
    south = replace(TENANT, id="south")
    heir = replace(PERSON, id="heir")
    wanted = replace(
        FULL,
        tenants=(south,),
        principals=(OPERATOR, replace(heir, tenant_id="south")),
        credentials=(IDENTITY,),
        roles=(replace(ROLE, tenant_id="south"),),
        bindings=(replace(BINDING, subject="heir", tenant_id="south"),),
        devices=(replace(DEVICE, tenant_id="south"),),
    )
    await directory.apply(ALL)
    await directory.apply(plan(FULL, wanted))
    assert await directory.read() == replace(wanted, version=2)
    if back:
        await directory.apply(plan(wanted, FULL))
        assert await directory.read() == replace(FULL, version=3, credentials=(IDENTITY,))


async def test_a_caller_that_goes_away_harms_no_other(directory: AccessDirectory) -> None:
    await directory.apply(ALL)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await directory.read()
    assert await directory.read() == FULL
