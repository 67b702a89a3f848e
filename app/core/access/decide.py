"""Who may do what: the one place where it is decided.

The caller's credential counts, the device's tenant is theirs, no rule denies it, a rule allows it, and so does what
narrows the key; then requirements and limits are collected. All that is not allowed is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.core.access.callers import EVER, Caller, Refusal, Standing
from app.core.access.identify import standing_at, standing_of
from app.core.access.model import Device
from app.core.access.questions import Answer, Decision, Question, Reason
from app.core.access.rules import OF_METHODS, Action, Rule
from app.core.access.ruleset import RuleSet, Table, asked_text
from app.core.access.snapshot import Grant, Snapshot


def decide(
    snapshot: Snapshot,
    caller: Caller,
    action: Action,
    device: str,
    profile: str,
    method: str,
    now_us: int,
    tenant_id: str | None = None,
) -> Decision:
    """Whether the caller may do it now. What `Question` says of names and `tenant_id` holds here.

    `profile` is the one that the command will really have, so where the caller names none, the default.
    """
    key = (caller, Question(action, device, profile, method, tenant_id))
    found = snapshot.answers.get(key)
    if found is not None and found.since_us <= now_us < found.until_us:
        return found.decision
    standing = standing_of(snapshot, caller)
    decision = _judge(snapshot, standing_at(now_us, standing), key[1], now_us)
    snapshot.answers.put(key, Answer(decision, *_span(standing, now_us)))
    return decision


def readable(
    snapshot: Snapshot, caller: Caller, devices: Iterable[Device], profile: str, now_us: int
) -> Iterator[Device]:
    """Those that the caller may know of; `profile` is that of devices whose record names none.

    Nothing is remembered: there may be more devices than the memory has places, which those in use need.
    """
    standing = standing_at(now_us, standing_of(snapshot, caller))
    for one in devices:
        if _judge(snapshot, standing, Question(Action.READ, one.id, one.profile or profile), now_us).allowed:
            yield one


def _judge(snapshot: Snapshot, standing: Standing | Refusal, question: Question, now_us: int) -> Decision:
    if isinstance(standing, Refusal):
        return Decision(allowed=False, reason=standing)
    if not _is_whole(question):
        return Decision(allowed=False, reason=Reason.NO_RULE)
    owner = owner_of(snapshot, question)
    if standing.tenant_id is not None and standing.tenant_id != owner:
        return Decision(allowed=False, reason=Reason.FOREIGN)
    grants = [grant.rules for grant in grants_of(snapshot, standing, question.device, owner, now_us)]
    narrow = snapshot.narrows.get(standing.credential.id) if standing.credential else None
    return _judge_by(grants, narrow, question)


def owner_of(snapshot: Snapshot, question: Question) -> str | None:
    """The tenant that the question is about."""
    return snapshot.tenancy.owner(question.device) if question.device else question.tenant_id


def grants_of(snapshot: Snapshot, standing: Standing, device: str, owner: str | None, now_us: int) -> Iterator[Grant]:
    """What counts for the device and its owner at this instant."""
    for subject in standing.subjects:
        for grant in snapshot.grants.get(subject, ()):
            binding = grant.binding
            if (
                binding.tenant_id in (None, owner)
                and (binding.expires_us is None or now_us < binding.expires_us)
                and grant.devices.fit(device)
            ):
                yield grant


def _is_whole(question: Question) -> bool:
    """Whether no name is missing by which a rule could deny it."""
    return question.action not in OF_METHODS or bool(question.device and question.profile and question.method)


def _judge_by(grants: Iterable[RuleSet], narrow: RuleSet | None, question: Question) -> Decision:
    asked = asked_text(question.profile, question.method, question.device)
    tables = list(dict.fromkeys([table for rules in grants if (table := rules.about(question.action))]))
    limiting = narrow.about(question.action) if narrow else None
    for table in (*tables, *([limiting] if limiting else [])):
        denied = table.denies.first(asked)
        if denied is not None:
            return Decision(allowed=False, reason=Reason.DENIED, rule=denied)
    allowed = _first_that_allows(tables, asked)
    if allowed is None:
        return Decision(allowed=False, reason=Reason.NO_RULE)
    if narrow is not None:
        if limiting is None or limiting.allows.first(asked) is None:
            return Decision(allowed=False, reason=Reason.NARROWED)
        tables.append(limiting)
    conditions = [rule for table in tables for rule in table.conditions(asked)]
    if not conditions:
        return Decision(allowed=True, reason=Reason.ALLOWED, rule=allowed)
    return Decision(
        allowed=True,
        reason=Reason.ALLOWED,
        rule=allowed,
        requires=max([rule.people for rule in conditions]),
        limits=tuple([rule for rule in conditions if rule.limit is not None]),
    )


def _first_that_allows(tables: Iterable[Table], asked: str) -> Rule | None:
    for table in tables:
        rule = table.allows.first(asked)
        if rule is not None:
            return rule
    return None


def _span(standing: Standing | Refusal, now_us: int) -> tuple[int, int]:
    """From when until when nothing that the caller has expires."""
    ends = () if isinstance(standing, Refusal) else standing.ends
    if not ends:
        return -EVER, EVER
    return (
        max([end for end in ends if end <= now_us], default=-EVER),
        min([end for end in ends if end > now_us], default=EVER),
    )
