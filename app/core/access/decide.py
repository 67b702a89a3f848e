"""The one place where it is decided who may do what.

The caller's credential counts, the device's tenant is theirs, no rule denies it, a rule allows it, and so does what
narrows the key; then requirements and limits are collected. All that is not allowed is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.core.access.callers import EVER, Caller, CallerStanding, Refusal
from app.core.access.identify import standing_at, standing_of
from app.core.access.limits import bucket_of
from app.core.access.model import Device
from app.core.access.questions import AccessAnswer, AccessDecision, Question, Reason
from app.core.access.rules import OF_METHODS, Action, is_device
from app.core.access.ruleset import RuleSet
from app.core.access.snapshot import Snapshot


def decide(
    snapshot: Snapshot,
    caller: Caller,
    action: Action,
    device: str,
    profile: str,
    method: str,
    now_us: int,
    tenant_id: str | None = None,
) -> AccessDecision:
    """Decide whether the caller may do it now. What `Question` says of names and `tenant_id` holds here.

    `profile` is the one that the command will really have, so where the caller names none, the default.
    """
    key = (caller, action, device, profile, method, tenant_id)
    found = snapshot.answers.get(key)
    if found is not None and found[1] <= now_us < found[2]:
        return found[0]
    standing = standing_of(snapshot, caller)
    question = Question(action, device, profile, method, tenant_id)
    decision = _judge(snapshot, standing_at(now_us, standing), question, now_us)
    if decision.limits and isinstance(standing, CallerStanding):
        counted = [(bucket_of(standing, caller, rule, device), rule) for rule in decision.limits]
        decision = replace(decision, counted=tuple(counted))
    snapshot.answers.put(key, AccessAnswer(decision, *_span(standing, now_us)))
    return decision


def readable(
    snapshot: Snapshot, caller: Caller, devices: Iterable[Device], profile: str, now_us: int
) -> Iterator[Device]:
    """Yield the devices that the caller may know of; `profile` is that of devices whose record names none.

    Nothing is remembered: there may be more devices than the memory has places, which those in use need.
    """
    standing = standing_at(now_us, standing_of(snapshot, caller))
    for one in devices:
        if _judge(snapshot, standing, Question(Action.READ, one.id, one.profile or profile), now_us).allowed:
            yield one


def may_read_some(snapshot: Snapshot, caller: Caller, device: str, now_us: int) -> bool:
    """True if there may be a method of the device of which the caller may read. False is certain."""
    standing = standing_at(now_us, standing_of(snapshot, caller))
    if isinstance(standing, Refusal):
        return False
    owner = snapshot.tenancy.owner(device)
    if standing.tenant_id not in (None, owner):
        return False
    narrow = snapshot.narrows.get(standing.credential.id) if standing.credential else None
    rules = _rules_of(snapshot, standing.subjects, device, owner, now_us)
    return all(one.allows_some(Action.READ, device) for one in (rules, narrow) if one is not None)


def _judge(snapshot: Snapshot, standing: CallerStanding | Refusal, question: Question, now_us: int) -> AccessDecision:
    if isinstance(standing, Refusal):
        return AccessDecision(allowed=False, reason=standing)
    if not _is_whole(question):
        return AccessDecision(allowed=False, reason=Reason.NO_RULE)
    owner = owner_of(snapshot, question)
    if standing.tenant_id is not None and standing.tenant_id != owner:
        return AccessDecision(allowed=False, reason=Reason.FOREIGN)
    rules = _rules_of(snapshot, standing.subjects, question.device, owner, now_us)
    narrow = snapshot.narrows.get(standing.credential.id) if standing.credential else None
    return _judge_by(rules, narrow, question)


def owner_of(snapshot: Snapshot, question: Question) -> str | None:
    """The tenant that the question is about."""
    return snapshot.tenancy.owner(question.device) if is_device(question.device) else question.tenant_id


def _rules_of(snapshot: Snapshot, subjects: tuple[str, ...], device: str, owner: str | None, now_us: int) -> RuleSet:
    """All rules that count for the device and its owner at this instant."""
    held = snapshot.held(subjects, owner)
    if not held.sometimes:
        return held.always
    also = [grant.rules for grant in held.sometimes if grant.counts(device, now_us)]
    return snapshot.together((held.always, *also)) if also else held.always


def _is_whole(question: Question) -> bool:
    """True if no name is missing by which a rule could deny it."""
    return question.action not in OF_METHODS or bool(question.device and question.profile and question.method)


def _judge_by(rules: RuleSet, narrow: RuleSet | None, question: Question) -> AccessDecision:
    action, device, profile, method, _ = question
    table = rules.about(action, profile, method)
    limiting = None if narrow is None else narrow.about(action, profile, method)
    denied = table.denies.first(device) or (limiting and limiting.denies.first(device))
    if denied:
        return AccessDecision(allowed=False, reason=Reason.DENIED, rule=denied)
    allowed = table.allows.first(device)
    if allowed is None:
        return AccessDecision(allowed=False, reason=Reason.NO_RULE)
    if limiting is not None and limiting.allows.first(device) is None:
        return AccessDecision(allowed=False, reason=Reason.NARROWED)
    conditions = table.conditions.all(device)
    if limiting is not None:
        conditions += limiting.conditions.all(device)
    if not conditions:
        return AccessDecision(allowed=True, reason=Reason.ALLOWED, rule=allowed)
    return AccessDecision(
        allowed=True,
        reason=Reason.ALLOWED,
        rule=allowed,
        requires=max([rule.people for rule in conditions]),
        within=min([rule.within for rule in conditions if rule.within is not None], default=None),
        limits=tuple([rule for rule in conditions if rule.limit is not None]),
    )


def _span(standing: CallerStanding | Refusal, now_us: int) -> tuple[int, int]:
    """From when until when nothing that the caller has expires."""
    ends = () if isinstance(standing, Refusal) else standing.ends
    if not ends:
        return -EVER, EVER
    return (
        max([end for end in ends if end <= now_us], default=-EVER),
        min([end for end in ends if end > now_us], default=EVER),
    )
