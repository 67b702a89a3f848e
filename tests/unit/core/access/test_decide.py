from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.access.callers import Caller, Refusal
from app.core.access.decide import decide
from app.core.access.keys import make_key
from app.core.access.memo import SIZE
from app.core.access.model import Document
from app.core.access.questions import AccessDecision, Question, Reason
from app.core.access.rules import Action
from app.core.access.snapshot import Snapshot
from tests.unit.core.access.documents import (
    CALLERS,
    DOCUMENTS,
    INSTANTS,
    QUESTIONS,
    binding,
    identity_of,
    key_of,
    role,
    service,
    tenant,
    token,
)
from tests.unit.core.access.reference import Verdict, verdict

KEY = make_key(Random(1).randbytes)
CI = Caller.of_key(KEY.id)
BASE = Document(
    cluster_id="c",
    version=1,
    tenants=(tenant("north", "dock-*"), tenant("south", "mast-*")),
    principals=(service("ci", "north"), service("homing")),
    credentials=(key_of("ci", KEY), identity_of("homing", "root")),
    roles=(role("pilot", "allow send dji:cover_* on *", "deny send *:*_open on dock-9"),),
    bindings=(binding("ci", "pilot", tenant_id="north"), binding("homing", "admin")),
)


def asked(snapshot: Snapshot, caller: Caller, question: Question, now_us: int) -> AccessDecision:
    action, device, profile, method, tenant_id = question
    return decide(snapshot, caller, action, device, profile, method, now_us, tenant_id)


def told(decision: AccessDecision) -> Verdict:
    if not decision.allowed:
        return Verdict(allowed=False)
    return Verdict(allowed=True, requires=decision.requires, limits=frozenset(rule.text for rule in decision.limits))


def send(document: Document, device: str, method: str, *, caller: Caller = CI, now_us: int = 10) -> AccessDecision:
    return decide(Snapshot.of(document), caller, Action.SEND, device, "dji", method, now_us)


@settings(deadline=None, max_examples=500)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS)
def test_it_decides_as_the_reference(document: Document, caller: Caller, question: Question, now_us: int) -> None:
    assert told(asked(Snapshot.of(document), caller, question, now_us)) == verdict(document, caller, question, now_us)


@settings(deadline=None)
@given(DOCUMENTS, st.lists(st.tuples(CALLERS, QUESTIONS, INSTANTS), min_size=2, max_size=12))
def test_what_is_remembered_changes_nothing(document: Document, questions: list[tuple[Caller, Question, int]]) -> None:
    """Also when the clock is set back, or an expiry passes between two questions."""
    snapshot = Snapshot.of(document)
    for caller, question, now_us in [*questions, *((caller, question, 9 - at) for caller, question, at in questions)]:
        assert told(asked(snapshot, caller, question, now_us)) == verdict(document, caller, question, now_us)


@settings(deadline=None)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS, st.randoms(use_true_random=False))
def test_the_order_changes_nothing(
    document: Document, caller: Caller, question: Question, now_us: int, random: Random
) -> None:
    shuffled = replace(
        document,
        tenants=tuple(random.sample(document.tenants, len(document.tenants))),
        roles=tuple(replace(one, rules=tuple(random.sample(one.rules, len(one.rules)))) for one in document.roles),
        bindings=tuple(random.sample(document.bindings, len(document.bindings))),
        credentials=tuple(
            replace(one, narrow=tuple(random.sample(one.narrow, len(one.narrow)))) for one in document.credentials
        ),
    )
    one, other = (told(asked(Snapshot.of(each), caller, question, now_us)) for each in (document, shuffled))
    assert one == other


@settings(deadline=None)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS)
def test_a_narrow_key_may_nothing_that_the_wide_one_may_not(
    document: Document, caller: Caller, question: Question, now_us: int
) -> None:
    wide = replace(document, credentials=tuple(replace(one, narrow=()) for one in document.credentials))
    if asked(Snapshot.of(document), caller, question, now_us).allowed:
        assert asked(Snapshot.of(wide), caller, question, now_us).allowed


@settings(deadline=None)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS)
def test_without_rules_nothing_is_allowed(document: Document, caller: Caller, question: Question, now_us: int) -> None:
    assert not asked(Snapshot.of(replace(document, bindings=())), caller, question, now_us).allowed


@settings(deadline=None)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS)
def test_who_is_denied_everything_may_nothing(
    document: Document, caller: Caller, question: Question, now_us: int
) -> None:
    denied = replace(
        document,
        roles=(*document.roles, role("none", "deny * *:* on *")),
        bindings=(
            *document.bindings,
            *(binding(subject, "none") for subject in ("p1", "p2", "group:g1", "group:g2")),
        ),
    )
    assert not asked(Snapshot.of(denied), caller, question, now_us).allowed


def test_the_rule_is_named() -> None:
    assert send(BASE, "dock-1", "cover_open").rule == Snapshot.of(BASE).roles[None, "pilot"].rules[0]
    denied = send(BASE, "dock-9", "cover_open")
    assert (denied.reason, denied.rule and denied.rule.name) == (Reason.DENIED, "pilot.2")
    missing = send(BASE, "dock-1", "drone_open")
    assert (missing.reason, missing.rule) == (Reason.NO_RULE, None)


@pytest.mark.parametrize("device", ["mast-1", "elsewhere", "dock", "DOCK-1"])
def test_what_is_not_the_tenants_is_foreign(device: str) -> None:
    everywhere = replace(BASE, bindings=(binding("ci", "admin"),))
    assert send(everywhere, "dock-1", "cover_open").allowed
    assert send(everywhere, device, "cover_open").reason is Reason.FOREIGN


def test_only_who_has_no_tenant_reaches_homing_itself() -> None:
    snapshot = Snapshot.of(replace(BASE, bindings=(binding("ci", "admin"), binding("homing", "admin"))))
    assert decide(snapshot, token("root"), Action.ACCESS, "", "", "", 10).allowed
    assert decide(snapshot, CI, Action.ACCESS, "", "", "", 10).reason is Reason.FOREIGN
    assert decide(snapshot, CI, Action.ACCESS, "", "", "", 10, "north").allowed
    assert decide(snapshot, CI, Action.ACCESS, "", "", "", 10, "south").reason is Reason.FOREIGN


def test_an_admin_of_one_tenant_is_none_of_homing() -> None:
    snapshot = Snapshot.of(replace(BASE, bindings=(binding("homing", "admin", tenant_id="north"),)))
    assert decide(snapshot, token("root"), Action.ACCESS, "", "", "", 10, "north").allowed
    assert not decide(snapshot, token("root"), Action.ACCESS, "", "", "", 10).allowed


@pytest.mark.parametrize("action", [Action.SEND, Action.CANCEL, Action.APPROVE, Action.OVERRIDE])
@pytest.mark.parametrize("names", [("", "dji", "x"), ("dock-1", "", "x"), ("dock-1", "dji", "")])
def test_a_command_without_device_profile_or_method_is_refused(action: Action, names: tuple[str, str, str]) -> None:
    """Or it would slip past a rule that denies by the missing name."""
    assert not decide(Snapshot.of(BASE), token("root"), action, *names, 10).allowed


@pytest.mark.parametrize(
    ("caller", "expires_us"),
    [(CI, 50), (token("root", expires_us=50), 50)],
)
def test_a_credential_ends_at_its_instant(caller: Caller, expires_us: int) -> None:
    document = replace(
        BASE,
        bindings=(binding("ci", "admin"), binding("homing", "admin")),
        credentials=(key_of("ci", KEY, expires_us=expires_us), identity_of("homing", "root")),
    )
    snapshot = Snapshot.of(document)
    reasons = [decide(snapshot, caller, Action.READ, "dock-1", "", "", at).reason for at in (49, 50, 51, 49)]
    assert reasons == [Reason.ALLOWED, Refusal.EXPIRED, Refusal.EXPIRED, Reason.ALLOWED]


def test_a_binding_ends_at_its_instant_with_what_it_denied() -> None:
    roles = (role("pilot", "allow send dji:* on *"), role("no_covers", "deny send dji:cover_* on *"))
    bindings = (
        binding("ci", "pilot", expires_us=50),
        binding("ci", "no_covers", expires_us=40),
    )
    snapshot = Snapshot.of(replace(BASE, roles=roles, bindings=bindings))
    reasons = [decide(snapshot, CI, Action.SEND, "dock-1", "dji", "cover_open", at).reason for at in (39, 40, 49, 50)]
    assert reasons == [Reason.DENIED, Reason.ALLOWED, Reason.ALLOWED, Reason.NO_RULE]


def test_a_binding_is_for_its_devices_only_and_so_is_what_it_denies() -> None:
    roles = (role("pilot", "allow send dji:* on *"), role("no_covers", "deny send dji:cover_* on *"))
    bindings = (
        binding("ci", "pilot", devices=("dock-1", "dock-2*")),
        binding("ci", "no_covers", devices=("dock-2*",)),
    )
    document = replace(BASE, roles=roles, bindings=bindings)
    devices = ["dock-1", "dock-10", "dock-2", "dock-22"]
    assert [send(document, one, "cover_open").reason for one in devices] == [
        Reason.ALLOWED,
        Reason.NO_RULE,
        Reason.DENIED,
        Reason.DENIED,
    ]
    assert send(document, "dock-2", "drone_open").allowed


def test_conditions_of_all_rules_that_fit_are_kept() -> None:
    roles = (
        role("pilot", "allow send *:* on *", "limit send *:* on * 9/s", "limit send *:x on * 1/s"),
        role("careful", "require 2 send dji:* on dock-*", "limit send *:y on * 2/s", "limit read *:* on * 3/s"),
    )
    bindings = (binding("ci", "pilot"), binding("ci", "pilot", tenant_id="north"), binding("ci", "careful"))
    decision = send(replace(BASE, roles=roles, bindings=bindings), "dock-1", "x")
    assert decision.requires == 2
    assert [rule.name for rule in decision.limits] == ["pilot.2", "pilot.3"]


def test_what_narrows_a_key_may_limit_it_and_ask_for_a_second_person() -> None:
    narrow = ["allow send *:cover_* on *", "limit send *:* on * 1/s", "require 2 send *:cover_open on *"]
    document = replace(BASE, credentials=(key_of("ci", KEY, narrow=narrow),), bindings=(binding("ci", "operator"),))
    decision = send(document, "dock-1", "cover_open")
    assert (decision.allowed, decision.requires, len(decision.limits)) == (True, 2, 1)
    assert send(document, "dock-1", "drone_open").reason is Reason.NARROWED


@pytest.mark.parametrize(
    ("narrow", "reason"),
    [
        ("allow send *:cover_* on *", Reason.ALLOWED),
        ("allow send *:drone_* on *", Reason.NARROWED),
        ("allow read *:* on *", Reason.NARROWED),
        ("deny send *:* on mast-1", Reason.NARROWED),
        ("deny send *:* on *", Reason.DENIED),
    ],
)
def test_a_key_that_is_narrow_may_what_its_rules_allow_as_well(narrow: str, reason: Reason) -> None:
    document = replace(BASE, credentials=(key_of("ci", KEY, narrow=[narrow]),), bindings=(binding("ci", "operator"),))
    assert send(document, "dock-1", "cover_open").reason is reason


def test_the_memory_is_bounded_and_dies_with_its_snapshot() -> None:
    snapshot = Snapshot.of(BASE)
    for number in range(SIZE + 100):
        decide(snapshot, CI, Action.READ, f"dock-{number}", "", "", 10)
        assert 0 < len(snapshot.answers) <= SIZE
    assert (CI, *Question(Action.READ, f"dock-{SIZE + 99}")) in snapshot.answers._answers
    assert len(snapshot.without([], 10).answers) == 0
