"""Nobody may give rights that they do not have: what a change gives to whom, and whether the caller has all of it.

Everything is taken for given that might be: a rule counts as had only when one rule of the caller covers all of it, and
whatever restricts the caller there restricts the one who gains as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from app.core.access.callers import GROUP, Caller, Refusal
from app.core.access.changes import Change, Put, Remove
from app.core.access.devices import device_of_principal, is_device_principal
from app.core.access.identify import stand, standing_at
from app.core.access.model import Binding, Credential, Device, Principal
from app.core.access.patterns import covers, overlap
from app.core.access.rules import AccessRule, Effect, parse_rule
from app.core.access.snapshot import Snapshot
from app.core.errors import ForbiddenError


class Right(NamedTuple):
    """A rule, where and until when it counts."""

    rule: AccessRule
    tenant_id: str | None
    """None: in every tenant."""
    devices: tuple[str, ...]
    expires_us: int | None

    @property
    def said(self) -> tuple[object, ...]:
        """The words that tell a right from others: the same words in another role are the same right."""
        rule = self.rule
        words = (rule.effect, rule.action, rule.profile, rule.method, rule.device, rule.people, rule.limit)
        return (*words, self.tenant_id, self.devices, self.expires_us)


EVERYTHING: Final = Right(parse_rule("allow * *:* on *", "everything", 1), None, ("*",), None)
"""The right that is needed to move the walls between tenants."""


_OF_DEVICES: Final = tuple(parse_rule(f"allow {one} *:* on *", "device", 1) for one in ("publish", "read"))


class _Holder(NamedTuple):
    """The rights that somebody holds, and the restrictions that keep them from more."""

    allows: tuple[Right, ...]
    restrictions: tuple[Right, ...]


_NOBODY: Final = _Holder((), ())


def check_gains(before: Snapshot, after: Snapshot, caller: Caller, now_us: int) -> None:
    """ForbiddenError when somebody may do more after the change than they might before, and than the caller may."""
    for who, right, theirs in _gains(before, after, caller):
        if not _has(before, caller, right, theirs, now_us):
            raise ForbiddenError(f"this would let {who} do what this key may not: {right.rule.text}")


def check_walls(before: Snapshot, changes: Iterable[Change], caller: Caller, now_us: int) -> None:
    """ForbiddenError when a device goes to another tenant, and the caller may not do everything."""
    name: str
    owner: str | None
    for change in changes:
        match change:
            case Put(entry=Device() as device):
                name, owner = device.id, device.tenant_id
            case Remove(kind=kind) if kind is Device:
                name, owner = change.id, before.tenancy.owner_by_pattern(change.id)
            case _:
                continue
        moves = owner not in (None, before.tenancy.owner(name))
        if moves and not _has(before, caller, EVERYTHING, _NOBODY, now_us):
            raise ForbiddenError(f"this would give device {name!a} to tenant {owner!a}, which who operates Homing may")


def _gains(before: Snapshot, after: Snapshot, caller: Caller) -> Iterator[tuple[str, Right, _Holder]]:
    if before.tenancy.patterns != after.tenancy.patterns:
        yield "tenants", EVERYTHING, _NOBODY
    opened = {one for one in after.principals if _is_opened(before, after, one, caller)}
    devices = filter(is_device_principal, after.principals)
    for subject in {*after.grants, *before.grants, *opened, *devices}:
        old, new = _holder(before, subject), _holder(after, subject)
        known = {one.said for one in old.allows}
        freed = {one.said for one in old.restrictions} - {one.said for one in new.restrictions}
        for right in new.allows:
            if right.said not in known or freed or subject in opened:
                yield f"{subject!a}", right, new


def _holder(snapshot: Snapshot, subject: str) -> _Holder:
    allows = [*_rights_of_device(snapshot, subject)]
    restrictions: list[Right] = []
    for grant in snapshot.grants.get(subject, ()):
        tenant_id, counts = _scope(snapshot, subject, grant.binding)
        if not counts:
            continue
        for rule in grant.rules.rules:
            right = Right(rule, tenant_id, grant.binding.devices, grant.binding.expires_us)
            (allows if rule.effect is Effect.ALLOW else restrictions).append(right)
    return _Holder(tuple(allows), tuple(restrictions))


def _rights_of_device(snapshot: Snapshot, subject: str) -> Iterator[Right]:
    """The rights that a device has without any binding, as rules would say it."""
    device, principal = device_of_principal(subject), snapshot.principals.get(subject)
    if device is not None and principal is not None:
        for rule in _OF_DEVICES:
            yield Right(rule, principal.tenant_id, (device,), None)


def _scope(snapshot: Snapshot, subject: str, binding: Binding) -> tuple[str | None, bool]:
    """The tenant in which the binding counts for its subject, and whether it does anywhere."""
    principal = None if subject.startswith(GROUP) else snapshot.principals.get(subject)
    if principal is None or principal.tenant_id is None:
        return binding.tenant_id, True
    return principal.tenant_id, binding.tenant_id in (None, principal.tenant_id)


def _is_opened(before: Snapshot, after: Snapshot, principal_id: str, caller: Caller) -> bool:
    """True if somebody may become this principal who could not before."""
    old, new = before.principals.get(principal_id), after.principals[principal_id]
    if old is None:
        return False  # what a new one gets is new bindings
    if _may_be(old) < _may_be(new) or old.tenant_id != new.tenant_id:
        return True
    if new.password_hash not in (None, old.password_hash):
        return True
    own = stand(before, caller)
    mine = None if isinstance(own, Refusal) or own.principal is None else own.principal.id
    narrow = None if isinstance(own, Refusal) or own.credential is None else own.credential.narrow
    return any(
        _opens(before.credentials.get(one.id), one) and not (mine == principal_id and _narrows(narrow, one.narrow))
        for one in after.credentials.values()
        if one.principal_id == principal_id
    )


def _may_be(principal: Principal) -> bool:
    return principal.disabled_us is None


def _opens(old: Credential | None, new: Credential) -> bool:
    """True if a credential counts for more, or longer, than it did."""
    if new.revoked_us is not None:
        return False
    if old is None:
        return True
    same = (old.principal_id, old.digest, old.issuer, old.subject, old.narrow)
    if same != (new.principal_id, new.digest, new.issuer, new.subject, new.narrow) or old.revoked_us is not None:
        return True
    return old.expires_us is not None and (new.expires_us is None or new.expires_us > old.expires_us)


def _narrows(own: tuple[str, ...] | None, new: tuple[str, ...]) -> bool:
    """True if a new key of the caller's own may do no more than the one in hand."""
    return not own or own == new


def _has(snapshot: Snapshot, caller: Caller, right: Right, theirs: _Holder, now_us: int) -> bool:
    standing = standing_at(now_us, stand(snapshot, caller))
    if isinstance(standing, Refusal) or standing.tenant_id not in (None, right.tenant_id):
        return False
    mine = [_active(_holder(snapshot, subject), now_us) for subject in standing.subjects]
    narrow = snapshot.narrows.get(standing.credential.id) if standing.credential else None
    narrowing = [Right(rule, None, ("*",), None) for rule in narrow.rules] if narrow else []
    if not any(_covers(one, right) for holder in mine for one in holder.allows):
        return False
    if narrow and not any(_covers(one, right) for one in narrowing if one.rule.effect is Effect.ALLOW):
        return False
    bounds = [one for holder in mine for one in holder.restrictions]
    bounds += [one for one in narrowing if one.rule.effect is not Effect.ALLOW]
    return all(_shared(one, theirs.restrictions) for one in bounds if _meets(one, right))


def _active(holder: _Holder, now_us: int) -> _Holder:
    def counting(rights: Iterable[Right]) -> tuple[Right, ...]:
        return tuple(one for one in rights if one.expires_us is None or now_us < one.expires_us)

    return _Holder(counting(holder.allows), counting(holder.restrictions))


def _covers(mine: Right, right: Right) -> bool:
    """True if one right has all of the other: also as far, and as long."""
    a, b = mine.rule, right.rule
    return (
        a.action in (None, b.action)
        and mine.tenant_id in (None, right.tenant_id)
        and (mine.expires_us is None or (right.expires_us is not None and right.expires_us <= mine.expires_us))
        and covers(a.profile, b.profile)
        and covers(a.method, b.method)
        and _within(right, lambda name: covers(a.device, name))
        and _within(right, lambda name: any(covers(one, name) for one in mine.devices))
    )


def _within(right: Right, inside: Callable[[str], bool]) -> bool:
    """True if all devices of the right are inside: they fit its rule, and its binding."""
    return inside(right.rule.device) or all(inside(one) for one in right.devices)


def _meets(bound: Right, right: Right) -> bool:
    """True if a restriction and a right have something in common."""
    a, b = bound.rule, right.rule
    return (
        (a.action is None or b.action in (None, a.action))
        and (bound.tenant_id is None or right.tenant_id in (None, bound.tenant_id))
        and overlap(a.profile, b.profile)
        and overlap(a.method, b.method)
        and overlap(a.device, b.device)
    )


def _shared(bound: Right, theirs: Iterable[Right]) -> bool:
    """True if they are restricted at least as much."""
    return any(
        one.said[:7] == bound.said[:7]
        and one.tenant_id in (None, bound.tenant_id)
        and ("*" in one.devices or one.devices == bound.devices)
        and one.expires_us in (None, bound.expires_us)
        for one in theirs
    )
