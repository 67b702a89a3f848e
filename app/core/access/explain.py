"""Explains why something is not allowed, by the rules that nearly allow it. Slow, and so only for those who ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import nsmallest
from typing import Final, NamedTuple

from app.core.access.callers import Caller, CallerStanding
from app.core.access.decide import decide, owner_of
from app.core.access.identify import stand
from app.core.access.patterns import fits
from app.core.access.questions import AccessDecision, Question, Reason
from app.core.access.rules import AccessRule, Effect
from app.core.access.ruleset import RuleSet
from app.core.access.snapshot import Grant, Snapshot

_SHOWN: Final = 3


class _NearRule(NamedTuple):
    """A rule that allows nearly what was asked. The least is the nearest."""

    faults: int
    breadth: int
    """The share of it that is wildcards: who asks for one method rarely wants a rule that allows all."""
    name: str
    sentence: str


def explain(snapshot: Snapshot, caller: Caller, question: Question, now_us: int) -> AccessDecision:
    """Return what `decide` says, with up to three rules that nearly allow it when none does."""
    action, device, profile, method, tenant_id = question
    decision = decide(snapshot, caller, action, device, profile, method, now_us, tenant_id)
    standing = stand(snapshot, caller)
    if isinstance(standing, CallerStanding):
        if decision.reason is Reason.NARROWED and standing.credential is not None:
            return _with(decision, _of_narrow(snapshot.narrows[standing.credential.id], question))
        if decision.reason is Reason.NO_RULE:
            return _with(decision, _of_roles(snapshot, standing, question, now_us))
    return decision


def _with(decision: AccessDecision, misses: Iterator[_NearRule]) -> AccessDecision:
    return replace(decision, nearest=tuple(miss.sentence for miss in nsmallest(_SHOWN, misses)))


def _of_narrow(narrow: RuleSet, question: Question) -> Iterator[_NearRule]:
    for rule in narrow.rules:
        if rule.effect is Effect.ALLOW:
            yield _miss(rule, question, None)


def _of_roles(snapshot: Snapshot, standing: CallerStanding, question: Question, now_us: int) -> Iterator[_NearRule]:
    owner = owner_of(snapshot, question)
    held = [grant for subject in standing.subjects for grant in snapshot.grants.get(subject, ())]
    for (tenant_id, role), rules in snapshot.roles.items():
        if tenant_id not in (None, owner):
            continue
        why = _why_not_held(role, [grant for grant in held if grant.rules is rules], standing, question, owner, now_us)
        for rule in rules.rules:
            if rule.effect is Effect.ALLOW:
                yield _miss(rule, question, why)


def _why_not_held(
    role: str, grants: list[Grant], standing: CallerStanding, question: Question, owner: str | None, now_us: int
) -> str | None:
    """The reason why the role does not count; None when it does."""
    if not grants:
        who = f"{standing.principal.name!a}" if standing.principal is not None else "the caller"
        return f"{who} is not bound to {role!a}"
    reasons = [_why_not(grant, question.device, owner, now_us) for grant in grants]
    return None if None in reasons else reasons[0]


def _why_not(grant: Grant, device: str, owner: str | None, now_us: int) -> str | None:
    binding = grant.binding
    if binding.tenant_id not in (None, owner):
        return f"binding {binding.id!a} counts in tenant {binding.tenant_id!a} only"
    if binding.expires_us is not None and binding.expires_us <= now_us:
        return f"binding {binding.id!a} has expired"
    if not grant.devices.fit(device):
        return f"binding {binding.id!a} is for {', '.join(binding.devices)} only"
    return None


def _miss(rule: AccessRule, question: Question, why_not_held: str | None) -> _NearRule:
    fitting = {
        "action": rule.concerns(question.action),
        "profile": fits(rule.profile, question.profile),
        "method": fits(rule.method, question.method),
        "device": fits(rule.device, question.device),
    }
    wrong = [part for part, fit in fitting.items() if not fit]
    reasons = []
    if wrong:
        reasons.append(f"{' and '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not fit")
    if why_not_held is not None:
        reasons.append(why_not_held)
    sentence = f"{rule.name} {' '.join(rule.text.split())}: {', and '.join(reasons)}"
    breadth = sum(part.count("*") for part in (rule.action or "*", rule.profile, rule.method, rule.device))
    return _NearRule(len(wrong) + (why_not_held is not None), breadth, rule.name, sentence)
