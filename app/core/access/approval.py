"""The one place where it is decided who may be the second person for what somebody else has asked for.

There is no exception for administrators. What cannot be told is no: somebody who is not on record may be the same
person under another name, and who was put on record, or got a key, just now may be so by the one who asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.core.access.callers import Caller, Refusal
from app.core.access.identify import credential_of, lasting_caller, standing_at, standing_of
from app.core.access.model import Credential, Kind, Principal
from app.core.access.snapshot import Snapshot
from app.core.durations import format_duration

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SecondPersonPolicy:
    """The terms on which somebody counts as a second person.

    Principal and key are at least as old as `age`. `services` says whether a service counts, too.
    """

    age: timedelta = timedelta(hours=24)
    services: bool = False


def principal_of(snapshot: Snapshot, caller: Caller) -> Principal | None:
    """The principal of a caller, whatever their credential is worth by now; None of who is not on record."""
    credential = credential_of(snapshot, caller)
    principal_id = caller.principal_id if credential is None else credential.principal_id
    return snapshot.principals.get(principal_id or "")


def why_not_second(
    snapshot: Snapshot, proposer: Caller, approver: Caller, now_us: int, policy: SecondPersonPolicy
) -> str | None:
    """Return why a caller cannot be the second person for what another has asked for; None if they can.

    Whether the rules give them the right to approve is another question.
    """
    standing = standing_at(now_us, standing_of(snapshot, approver))
    first, second = principal_of(snapshot, proposer), principal_of(snapshot, approver)
    if isinstance(standing, Refusal) or second is None:
        return "only people who are on record can approve, by a credential that counts"
    if first is None:
        return "it was asked for by somebody who is not on record, and nobody can tell that you are another person"
    if first.id == second.id:
        return "you have asked for it yourself; another person has to approve it"
    if first.email and second.email and first.email.casefold() == second.email.casefold():
        return f"{first.id!a} has asked for it, who has the same e-mail address as you"
    if second.kind is not Kind.USER and not policy.services:
        return "you are a service, and a person has to approve it"
    return _too_new(second, credential_of(snapshot, lasting_caller(snapshot, approver)), now_us, policy)


def _too_new(second: Principal, credential: Credential | None, now_us: int, policy: SecondPersonPolicy) -> str | None:
    known = {"you are on record": second.created_us, "your password counts": second.not_before_us}
    if credential is not None:
        known["your key is on record"] = credential.created_us
    least = policy.age // _MICROSECOND
    for what, since in known.items():
        if since > now_us - least and least:
            return f"{what} for less than {format_duration(policy.age)}, after which you may approve"
    return None
