from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings

from app.core.access.callers import Caller
from app.core.access.explain import explain
from app.core.access.keys import make_key
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
    key_of,
    role,
    service,
    tenant,
)
from tests.unit.core.access.test_decide import asked

KEY = make_key(Random(1).randbytes)
BASE = Document(
    cluster_id="c",
    version=1,
    tenants=(tenant("north", "dock-*"), tenant("south", "mast-*")),
    principals=(service("ci", "north"),),
    credentials=(key_of("ci", KEY),),
    roles=(
        role("cover", "allow  send dji:cover_* on dock-*", "deny send dji:cover_reset on *"),
        role("pilot", "allow send dji:drone_* on dock-*", "allow read *:* on *"),
        role("secret", "allow send dji:drone_open on dock-7", tenant_id="south"),
    ),
    bindings=(binding("ci", "cover"),),
)


def explained(document: Document, method: str = "drone_open", device: str = "dock-7") -> AccessDecision:
    question = Question(Action.SEND, device, "dji", method)
    return explain(Snapshot.of(document), Caller.of_key(KEY.id), question, 50)


def test_the_nearest_rules_are_named_and_what_they_lack() -> None:
    decision = explained(BASE)
    assert decision.reason is Reason.NO_RULE
    assert decision.nearest == (
        "cover.1 allow send dji:cover_* on dock-*: method does not fit",
        "pilot.1 allow send dji:drone_* on dock-*: 'ci' is not bound to 'pilot'",
        "operator.5 allow send *:* on *: 'ci' is not bound to 'operator'",
    )


def test_a_binding_that_does_not_count_is_named() -> None:
    why = {
        binding("ci", "pilot", expires_us=50): "binding 'ci-pilot-None-50' has expired",
        binding("ci", "pilot", tenant_id="south"): "binding 'ci-pilot-south-None' counts in tenant 'south' only",
        binding(
            "ci", "pilot", devices=("dock-1", "dock-2*")
        ): "binding 'ci-pilot-None-None' is for dock-1, dock-2* only",
    }
    for one, sentence in why.items():
        nearest = explained(replace(BASE, bindings=(one,))).nearest
        assert nearest[0] == f"pilot.1 allow send dji:drone_* on dock-*: {sentence}"


def test_a_key_that_is_narrow_is_told() -> None:
    document = replace(BASE, credentials=(key_of("ci", KEY, narrow=["allow send dji:cover_open on *"]),))
    decision = explained(document, "cover_close")
    assert decision.reason is Reason.NARROWED
    assert decision.nearest == (f"(key {KEY.id}).1 allow send dji:cover_open on *: method does not fit",)


def test_nothing_is_told_of_other_tenants_or_beside_a_denial() -> None:
    assert "secret" not in str(explained(BASE).nearest)
    assert explained(BASE, device="mast-7").nearest == ()
    denied = explained(BASE, "cover_reset")
    assert (denied.rule and denied.rule.name, denied.nearest) == ("cover.2", ())


@settings(deadline=None)
@given(DOCUMENTS, CALLERS, QUESTIONS, INSTANTS)
def test_it_says_what_is_decided(document: Document, caller: Caller, question: Question, now_us: int) -> None:
    snapshot = Snapshot.of(document)
    explanation = explain(snapshot, caller, question, now_us)
    assert replace(explanation, nearest=()) == asked(snapshot, caller, question, now_us)
    assert bool(explanation.nearest) <= (explanation.reason in (Reason.NO_RULE, Reason.NARROWED))
