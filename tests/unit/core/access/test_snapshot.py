from __future__ import annotations

from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest

from app.core.access.callers import Caller, Refusal
from app.core.access.decide import decide
from app.core.access.keys import make_key
from app.core.access.model import Device, Document
from app.core.access.rules import Action
from app.core.access.snapshot import Snapshot
from app.core.errors import InvalidInputError
from tests.unit.core.access.documents import binding, identity_of, key_of, role, service, tenant, token
from tests.unit.core.hostile_ids import hostile_ids

KEY, OTHER_KEY = (make_key(Random(seed).randbytes) for seed in (1, 2))
BASE = Document(
    cluster_id="c",
    version=7,
    tenants=(tenant("north", "dock-*", "shared"), tenant("south", "mast-*")),
    principals=(service("ci", "north"),),
    credentials=(key_of("ci", KEY), identity_of("ci", "s1")),
    roles=(role("pilot", "allow send dji:* on dock-1", "deny send dji:x.y on *"),),
    bindings=(binding("ci", "pilot"),),
)


@pytest.mark.parametrize(
    ("faulty", "sentence"),
    [
        (
            replace(BASE, roles=(role("pilot", "allow read *:* on *", "dney * *:* on *"),)),
            "rules: role 'pilot', line 2: 'dney'",
        ),
        (
            replace(BASE, credentials=(key_of("ci", KEY, narrow=["allow"]),)),
            f"rules: role '(key {KEY.id})', line 1: ends too",
        ),
        (replace(BASE, roles=(role("admin"),), bindings=()), "roles: 'admin' is built in; allowed: any other name"),
        (
            replace(BASE, roles=(role("pilot"), role("pilot", tenant_id="north"))),
            "roles: 'pilot' of 'north' has the name of a",
        ),
        (replace(BASE, roles=(role("pilot"), role("pilot"))), "roles: two of them are (None, 'pilot'); allowed is one"),
        (
            replace(BASE, bindings=(binding("ci", "pilto"),)),
            "bindings: 'ci-pilto-None-None' names the role 'pilto', which is not",
        ),
        (
            replace(
                BASE, roles=(role("pilot", tenant_id="south"),), bindings=(binding("ci", "pilot", tenant_id="north"),)
            ),
            "bindings: 'ci-pilot-north-None' names the role 'pilot', which is not there",
        ),
        (
            replace(BASE, bindings=(binding("ci", "pilot", devices=("dock-?",)),)),
            "bindings: binding 'ci-pilot-None-None', pattern 'dock-?': '?' at index 5 is not allowed",
        ),
        (
            replace(BASE, bindings=(binding("ci", "pilot", devices=("dock-1,dock-2",)),)),
            "bindings: binding 'ci-pilot-None-None', pattern 'dock-1,dock-2': is one pattern with a comma",
        ),
        (replace(BASE, bindings=2 * (binding("ci", "pilot"),)), "bindings: two of them are"),
        (
            replace(BASE, tenants=(tenant("north", "dock-?"),)),
            "tenants: tenant 'north', pattern 'dock-?': '?' at index 5",
        ),
        (
            replace(BASE, tenants=(tenant("north", "dock-*"), tenant("south", "x", "*-1"))),
            "tenants: dock-* of 'north' and *-1 of 'south' overlap; a device has one tenant",
        ),
        (replace(BASE, tenants=(tenant("a", "x"), tenant("a", "y"))), "tenants: two of them are 'a'; allowed is one"),
        (
            replace(BASE, principals=(service("group:x"),)),
            "principals: id 'group:x' begins with group:, which stands for groups",
        ),
        (replace(BASE, principals=(service("ci"), service("ci", "north"))), "principals: two of them are 'ci'"),
        (
            replace(BASE, credentials=(replace(key_of("ci", KEY), digest=None),)),
            f"credentials: key '{KEY.id}' has no digest of 32",
        ),
        (
            replace(BASE, credentials=(replace(key_of("ci", KEY), digest=b"short"),)),
            f"credentials: key '{KEY.id}' has no digest",
        ),
        (
            replace(BASE, credentials=(key_of("ci", KEY), replace(key_of("ci", KEY), id="other"))),
            f"credentials: two of them are keys with the digest {KEY.digest.hex()[:8]}…; allowed is one",
        ),
        (replace(BASE, credentials=(key_of("ci", KEY), key_of("x", KEY))), f"credentials: two of them are '{KEY.id}'"),
        (
            replace(BASE, credentials=(replace(identity_of("ci", "s"), issuer=None),)),
            "credentials: identity 'oidc-s' has no issuer",
        ),
        (
            replace(BASE, credentials=(identity_of("ci", "s"), replace(identity_of("ci", "s"), id="other"))),
            "credentials: two of them are ('https://issuer.example', 's'); allowed is one",
        ),
        (replace(BASE, devices=2 * (Device(id="d", tenant_id="north"),)), "devices: two of them are 'd'"),
    ],
)
def test_a_faulty_document_is_refused_whole(faulty: Document, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Snapshot.of(faulty)
    assert str(error.value).startswith(sentence)


def test_nothing_of_it_can_be_changed() -> None:
    snapshot = Snapshot.of(BASE)
    names = ("principals", "credentials", "keys", "identities", "narrows", "roles", "grants", "devices")
    assert {type(getattr(snapshot, name)) for name in names} == {MappingProxyType}
    with pytest.raises(AttributeError):
        snapshot.version = 8  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("device", "owner"),
    [
        ("dock-7", "north"),
        ("mast-7", "south"),
        ("shared", "north"),
        ("dock", None),
        ("moved-1", "south"),
        ("dock-9", "south"),
    ],
)
def test_a_device_belongs_to_the_tenant_of_its_record_or_of_its_pattern(device: str, owner: str | None) -> None:
    records = (Device(id="moved-1", tenant_id="south"), Device(id="dock-9", tenant_id="south"))
    assert Snapshot.of(replace(BASE, devices=records)).tenancy.owner(device) == owner


def test_without_tenants_one_owns_everything() -> None:
    assert Snapshot.of(replace(BASE, tenants=())).tenancy.owner("anything") == "default"


def test_no_name_fits_a_rule_by_accident() -> None:
    document = replace(BASE, principals=(service("ci"),))
    snapshot = Snapshot.of(document)
    caller = Caller.of_key(KEY.id)
    assert decide(snapshot, caller, Action.SEND, "dock-1", "dji", "cover", 10).allowed
    for hostile in hostile_ids():
        for device in (hostile, "dock-1" + hostile, hostile + "dock-1"):
            if device != "dock-1":
                assert not decide(snapshot, caller, Action.SEND, device, "dji", "cover", 10).allowed
        for profile in (hostile, "dji" + hostile, hostile + "dji"):
            if profile != "dji":
                assert not decide(snapshot, caller, Action.SEND, "dock-1", profile, "cover", 10).allowed
    assert decide(snapshot, caller, Action.SEND, "dock-1", "dji", "x-y", 10).allowed
    assert not decide(snapshot, caller, Action.SEND, "dock-1", "dji", "x.y", 10).allowed


def test_names_are_not_run_together() -> None:
    """`dji` and `a:b` are not `dji:a` and `b`, and what would divide them in a rule has no place in a name."""
    document = replace(BASE, principals=(service("ci"),), roles=(role("pilot", "allow send dji:*b on dock-1"),))
    snapshot = Snapshot.of(document)
    caller = Caller.of_key(KEY.id)
    assert decide(snapshot, caller, Action.SEND, "dock-1", "dji", "a:b", 10).allowed
    assert not decide(snapshot, caller, Action.SEND, "dock-1", "dji:a", "b", 10).allowed
    assert not decide(snapshot, caller, Action.SEND, "x\0dock-1", "dji", "b", 10).allowed
    assert not decide(snapshot, caller, Action.SEND, "dock-1", "dji", "x\0b", 10).allowed


def test_revoking_at_once() -> None:
    before = Snapshot.of(replace(BASE, credentials=(*BASE.credentials, key_of("ci", OTHER_KEY))))
    after = before.without([KEY.id, "oidc-s1", "unknown"], 10)
    callers = [Caller.of_key(KEY.id), Caller.of_key(OTHER_KEY.id), token("s1", "pilots")]
    assert [decide(before, one, Action.SEND, "dock-1", "dji", "x", 9).allowed for one in callers] == [True, True, True]
    reasons = [decide(after, one, Action.SEND, "dock-1", "dji", "x", 9).reason for one in callers]
    assert reasons == [Refusal.REVOKED, "allowed", Refusal.REVOKED]
