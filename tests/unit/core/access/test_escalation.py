"""Nobody gives rights that they do not have: by hand, and for random changes against the plain reference."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.core.access.callers import EVER, Caller
from app.core.access.changes import Change, Put, Remove
from app.core.access.devices import device_principal
from app.core.access.escalation import check_gains, check_walls
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Scheme, Tenant
from app.core.access.plan import applied, entries_of
from app.core.access.questions import Question
from app.core.access.snapshot import Snapshot
from app.core.errors import ForbiddenError, InvalidInputError
from tests.unit.core.access import documents
from tests.unit.core.access.documents import binding, role, service, tenant
from tests.unit.core.access.reference import Verdict, verdict

KEY = Caller.of_key("k1")


def key(principal_id: str, key_id: str = "k1", *narrow: str, expires_us: int | None = None) -> Credential:
    return replace(
        Credential(
            id=key_id,
            principal_id=principal_id,
            scheme=Scheme.KEY,
            name="",
            digest=key_id.encode().ljust(32),
            created_us=0,
            expires_us=expires_us,
        ),
        narrow=narrow,
    )


def document(*rules: str, narrow: tuple[str, ...] = (), devices: tuple[str, ...] = ("*",)) -> Document:
    """The caller `me` of the tenant `air` has these rules; `other` and `root` have a key each."""
    return Document(
        cluster_id="c",
        version=1,
        tenants=(tenant("air", "a*"), tenant("ground", "b*")),
        principals=(service("me", "air"), service("other", "air"), service("root")),
        credentials=(key("me", "k1", *narrow), key("other", "k2"), key("root", "k3")),
        roles=(role("mine", *rules, tenant_id="air"), role("send", "allow send *:* on *", tenant_id="air")),
        bindings=(
            binding("me", "mine", tenant_id="air", devices=devices),
            binding("root", "admin"),
        ),
    )


def refused(before: Document, *changes: Change, caller: Caller = KEY) -> bool:
    try:
        check_gains(Snapshot.of(before), Snapshot.of(applied(before, changes)), caller, 5)
        check_walls(Snapshot.of(before), changes, caller, 5)
    except ForbiddenError:
        return True
    return False


ALL = "allow * *:* on *"
GIVE = Put(binding("other", "send", tenant_id="air"))


@pytest.mark.parametrize(
    ("rules", "narrow", "devices", "expected"),
    [
        ((ALL,), (), ("*",), False),
        (("allow send *:* on *",), (), ("*",), False),
        (("allow access *:* on *",), (), ("*",), True),
        (("allow send *:* on a*",), (), ("*",), True),
        ((ALL,), (), ("a*",), True),
        ((ALL, "deny send *:reset on *"), (), ("*",), True),
        ((ALL, "require 2 send *:* on a1"), (), ("*",), True),
        ((ALL, "limit send *:* on * 1/s"), (), ("*",), True),
        ((ALL, "deny read *:* on *"), (), ("*",), False),
        ((ALL,), ("allow access *:* on *",), ("*",), True),
        ((ALL,), (ALL,), ("*",), False),
        ((ALL,), (ALL, "deny send *:* on a1"), ("*",), True),
    ],
)
def test_who_has_all_of_a_right_may_give_it(
    rules: tuple[str, ...], narrow: tuple[str, ...], devices: tuple[str, ...], expected: object
) -> None:
    assert refused(document(*rules, narrow=narrow, devices=devices), GIVE) is expected


def test_less_is_given_by_who_has_more() -> None:
    before = document("allow send *:* on a*")
    narrower = binding("other", "send", tenant_id="air", devices=("a1", "a2*"))
    assert not refused(before, Put(narrower))
    assert refused(before, Put(replace(narrower, devices=("a1", "b1"))))


def test_what_restricts_the_giver_restricts_who_gains() -> None:
    before = document(ALL, "deny send *:reset on *")
    same = role("send", "allow send *:* on *", "deny send *:reset on *", tenant_id="air")
    assert not refused(before, Put(same), GIVE)
    given_now = applied(before, [Put(same), GIVE])
    assert refused(given_now, Put(role("send", "allow send *:* on *", tenant_id="air")))


def test_rights_do_not_outlive_those_of_the_giver() -> None:
    before = document(ALL)
    mine = replace(before.bindings[0], expires_us=9)
    before = replace(before, bindings=(mine, before.bindings[1]))
    assert refused(before, GIVE)
    assert not refused(before, Put(replace(binding("other", "send", tenant_id="air"), expires_us=9)))


def test_who_administers_one_tenant_gives_nothing_in_others() -> None:
    before = document(ALL)
    half = Put(service("half")), Put(key("half", "k4")), Put(binding("half", "admin", tenant_id="air"))
    before = applied(before, half)
    new = binding("root", "viewer", tenant_id="ground")
    for wide, expected in ((new, True), (replace(new, tenant_id=None), True), (replace(new, tenant_id="air"), False)):
        assert refused(before, Put(wide), caller=Caller.of_key("k4")) is expected


def test_who_gets_a_key_of_somebody_gets_their_rights() -> None:
    before = document("allow access *:* on *", "allow send *:* on a1")
    assert refused(before, Put(key("root", "k9")))
    assert not refused(before, Put(key("other", "k9")))
    with_rights = applied(before, [GIVE])
    assert refused(with_rights, Put(key("other", "k9")))
    assert refused(with_rights, Put(replace(with_rights.principals[1], password_hash="x")))
    assert not refused(with_rights, Put(replace(with_rights.principals[1], disabled_us=3)))
    disabled = applied(with_rights, [Put(replace(with_rights.principals[1], disabled_us=3))])
    assert refused(disabled, Put(with_rights.principals[1]))
    assert refused(with_rights, Put(replace(with_rights.principals[1], tenant_id=None)))


def test_a_narrowed_key_makes_keys_as_narrow() -> None:
    before = document("allow send *:* on *", narrow=("allow send *:* on a1",))
    assert refused(before, Put(key("me", "k9")))
    assert not refused(before, Put(key("me", "k9", "allow send *:* on a1")))
    assert not refused(document("allow send *:* on *"), Put(key("me", "k9")))


def test_walls_are_moved_by_who_may_do_everything() -> None:
    before = document(ALL)
    moved = Put(Tenant(id="air", name="air", devices=("a*", "c*"), created_us=0))
    root = Caller.of_key("k3")
    for change in (moved, Put(Device(id="b1", tenant_id="air")), Put(Device(id="z", tenant_id="air"))):
        assert refused(before, change)
        assert not refused(before, change, caller=root)
    assert not refused(before, Put(Device(id="a1", tenant_id="air")))
    lent = applied(before, [Put(Device(id="b1", tenant_id="air"))])
    assert refused(lent, Remove(kind=Device, id="b1"))


_KINDS = (Role, Binding, Principal, Credential, Tenant)


def changes_towards(before: Document, wanted: Document, take: list[bool]) -> list[Change]:
    """Some of what makes one document the other."""
    made: list[Change] = []
    for kind in _KINDS:
        old, new = entries_of(before, kind), entries_of(wanted, kind)
        made += [Put(entry) for name, entry in new.items() if old.get(name) != entry]
        if kind is not Tenant:
            made += [Remove(kind=kind, id=name[1], tenant_id=name[2]) for name in old.keys() - new.keys()]
    return [change for change, taken in zip(made, take, strict=False) if taken]


def less(given_now: Verdict, had: Verdict) -> bool:
    """True if one allows no more than the other."""
    if not given_now.allowed:
        return True
    return had.allowed and had.requires <= given_now.requires and had.limits <= given_now.limits


@settings(max_examples=400, deadline=None)
@given(
    before=documents.DOCUMENTS,
    wanted=documents.DOCUMENTS,
    take=st.lists(st.sampled_from([True, False, False]), min_size=8, max_size=8),
    caller=documents.CALLERS,
    questions=st.lists(documents.QUESTIONS, min_size=8, max_size=8),
)
def test_whatever_is_not_refused_gives_nobody_more_than_they_or_the_caller_had(
    before: Document, wanted: Document, take: list[bool], caller: Caller, questions: list[Question]
) -> None:
    changes = changes_towards(before, wanted, take)
    assume(changes)
    after = applied(before, changes)
    try:
        if refused_at(before, after, changes, caller):
            return
    except InvalidInputError:
        return
    for question in questions:
        mine = verdict(before, caller, question, 5)
        for who in ("p1", "p2"):
            if not any(one.id == who for one in before.principals):
                continue
            asked = Caller.of_login(who, issued_us=20, expires_us=EVER)
            then = verdict(after, asked, question, 5)
            assert less(then, verdict(before, asked, question, 5)) or less(then, mine), (who, question, changes)


def refused_at(before: Document, after: Document, changes: list[Change], caller: Caller) -> bool:
    old, new = Snapshot.of(before), Snapshot.of(after)
    try:
        check_gains(old, new, caller, 5)
        check_walls(old, changes, caller, 5)
    except ForbiddenError:
        return True
    return False


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (("allow access *:* on *",), False),
        (("allow access *:* on *", "allow publish *:* on *"), False),
        (("allow access *:* on *", "allow publish *:* on a1", "allow read *:* on a1"), True),
        (("allow access *:* on *", "allow publish *:* on a2", "allow read *:* on *"), False),
        (("allow * *:* on *", "deny publish *:* on a1"), False),
    ],
)
def test_who_gives_a_device_a_key_has_the_rights_of_the_device(rules: tuple[str, ...], *, allowed: bool) -> None:
    before = document(*rules)
    device = device_principal(before, Snapshot.of(before).tenancy, "a1", 0)
    assert device.tenant_id == "air"
    first = applied(before, [Put(device), Put(key(device.id, "k9"))])
    second = applied(first, [Put(key(device.id, "k8"))])
    for old, new in ((before, first), (first, second)):
        with nullcontext() if allowed else pytest.raises(ForbiddenError, match="what this key may not"):
            check_gains(Snapshot.of(old), Snapshot.of(new), KEY, 0)
