"""Decides who may do what on this node, from a snapshot in memory, which follows the access directory.

No request waits for the directory (docs/adr/0036). While it is away, the last snapshot counts; a node that has not
heard from it for `stale` seconds goes on reading, and sends nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

from app.access.enforcer import LimitEnforcer
from app.access.follower import DirectoryFollower, View
from app.access.ports import Identity, LimitState
from app.access.sentences import NO_TOKEN, NOT_ON_RECORD, WORTHLESS, why, worthless
from app.core.access.approval import SecondPersonPolicy, principal_of, why_not_second
from app.core.access.callers import EVER, Caller, CallerStanding, Refusal, TokenFault
from app.core.access.decide import decide, may_read_some
from app.core.access.identify import credential_of, identify_key, lasting_caller, standing_at, standing_of
from app.core.access.keys import PREFIX
from app.core.access.model import Device
from app.core.access.places import ConcurrencyPermit
from app.core.access.questions import AccessDecision
from app.core.access.rules import Action, is_device
from app.core.access.snapshot import Snapshot
from app.core.clock import Clock
from app.core.errors import (
    DeviceNotFoundError,
    DirectoryError,
    ForbiddenError,
    InvalidInputError,
    NeedsSecondPersonError,
    UnauthenticatedError,
    UnavailableError,
)
from app.runtime.telemetry import Counters

_ACTING: Final = frozenset({Action.SEND, Action.CANCEL, Action.APPROVE, Action.OVERRIDE, Action.FLEET, Action.ACCESS})


class TokenCheck(Protocol):
    """Knows tokens of an issuer."""

    def verify(self, text: str) -> Caller | TokenFault:
        """Return the caller who has shown the token, or the reason why it counts for nothing."""


class Authority:
    """Decides by what `following` knows of the directory, and by limits, of which this node has its share.

    `nodes` tells how many share them; after `stale` seconds without the directory nobody may act any more.
    """

    def __init__(
        self,
        following: DirectoryFollower,
        clock: Clock,
        *,
        stale: float,
        nodes: Callable[[], int],
        counters: Counters,
        tokens: TokenCheck | None = None,
        second: SecondPersonPolicy = SecondPersonPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        self.following: Final = following
        self._wall = clock.wall
        self._monotonic = clock.monotonic
        self._stale = stale
        self._counters = counters
        self._tokens = tokens
        self._second = second
        self.limiting: Final = LimitEnforcer(nodes)

    @property
    def health(self) -> str:
        """`ok`, or a sentence. A directory that is away keeps nobody from anything as long as there is a snapshot."""
        following = self.following
        if not following.known or self._is_stale():
            return following.trouble
        if not following.trouble:
            return "ok"
        return f"ok, but by the rules of {following.age:.0f} s ago: {following.trouble}"

    def caller(self, authorization: bytes | None) -> Caller:
        """Return the caller to whom the key belongs, or whom the token is about."""
        if authorization is None:
            raise UnauthenticatedError(NOT_ON_RECORD)
        shown, now_us = sha256(authorization).digest(), self._now_us()
        known = self._current().known.get(shown)
        if known is None or known[1] <= now_us:
            return self._look(authorization, shown, now_us)
        self.following.use(known[0], now_us)
        return known[0]

    def _look(self, authorization: bytes, shown: bytes, now_us: int) -> Caller:
        """Look who it is; keys that count are remembered by the digest of what was shown."""
        scheme, _, text = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError(NOT_ON_RECORD)
        text, snapshot = text.strip(), self._current()
        if self._tokens is not None and not text.startswith(PREFIX):
            return self._of_token(text, self._tokens)
        found = identify_key(snapshot, text, now_us)
        if isinstance(found, Refusal):
            raise UnauthenticatedError(f"the API key {WORTHLESS[found]}")
        snapshot.known.put(shown, (found, self._standing(found, now_us).expires_us))
        self.following.use(found, now_us)
        return found

    def _of_token(self, text: str, tokens: TokenCheck) -> Caller:
        """Return the caller whom the token is about, if the rules of this moment count them."""
        found = tokens.verify(text)
        if isinstance(found, TokenFault):
            self._counters[f"token.{found}"] += 1
            if found is TokenFault.NO_KEYS:
                raise UnavailableError(f"the token {NO_TOKEN[found]}")
            raise UnauthenticatedError(f"the token {NO_TOKEN[found]}")
        standing = standing_of(self._current(), found)
        if isinstance(standing, Refusal):
            raise UnauthenticatedError(worthless(found, standing))
        return found

    def check(
        self,
        caller: Caller | None,
        action: Action,
        device: str = "",
        profile: str = "",
        method: str = "",
        tenant_id: str | None = None,
    ) -> None:
        """By the rules of this moment. `tenant_id` counts where there is no device: None is Homing itself."""
        self._judge(caller, action, device, profile, method, tenant_id, now_us=self._now_us())

    def spend(
        self, caller: Caller | None, action: Action, device: str, profile: str, method: str
    ) -> ConcurrencyPermit | None:
        """By the rules of this moment, of whose limits this node has its share."""
        now_us = self._now_us()
        decision = self._judge(caller, action, device, profile, method, now_us=now_us, persons=2)
        place = self.limiting.spend(decision, action, now_us) if decision.limits else None
        if decision.requires > 1 and caller is not None:
            raise self._needs_second(caller, decision, action, device)
        return place

    def check_proposer(self, caller: Caller | None) -> None:
        """Judge by the rules of this moment."""
        if caller is None or principal_of(self._current(), caller) is None:
            raise NeedsSecondPersonError(
                "a second person has to approve this, and you are not on record, so nobody can tell who is another one"
            )

    def check_second(
        self, caller: Caller | None, proposer: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """Judge by the rules of this moment."""
        now_us = self._now_us()
        self._judge(caller, Action.APPROVE, device, profile, method, now_us=now_us)
        reason = why_not_second(self._current(), proposer or Caller(), caller or Caller(), now_us, self._second)
        if reason is not None:
            raise ForbiddenError(f"you cannot be the second person: {reason}")

    def check_approved(
        self, caller: Caller | None, approver: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """Judge both by the rules of this moment."""
        self._judge(caller, Action.SEND, device, profile, method, now_us=self._now_us(), persons=2)
        self.check_second(approver, caller, device, profile, method)

    def approver(self, caller: Caller | None) -> tuple[Caller, str]:
        """Find them in the rules of this moment."""
        return self.lasting(caller) or Caller(), self.who(caller)[0] or ""

    async def renew(self) -> None:
        """Take the directory's latest version as what counts."""
        try:
            await self.refresh()
        except (DirectoryError, InvalidInputError) as error:  # it is no directory that this node can go by
            raise UnavailableError(str(error)) from error

    def lasting(self, caller: Caller | None) -> Caller | None:
        """Find them in the rules of this moment."""
        return None if caller is None else lasting_caller(self._current(), caller)

    def limits(self, caller: Caller | None) -> Sequence[LimitState]:
        """By the rules of this moment."""
        now_us = self._now_us()
        standing = self._standing(caller, now_us)
        return tuple(self.limiting.states(self._current(), standing, caller or Caller(), now_us))

    def counts_open(self) -> bool:
        """True if a rule limits how many commands may be open."""
        return self.following.known and self._current().counts_open

    def _standing(self, caller: Caller | None, now_us: int) -> CallerStanding:
        standing = standing_at(now_us, standing_of(self._current(), caller or Caller()))
        if isinstance(standing, Refusal):
            raise UnauthenticatedError(worthless(caller, standing))
        return standing

    def _judge(
        self,
        caller: Caller | None,
        action: Action,
        device: str,
        profile: str,
        method: str,
        tenant_id: str | None = None,
        *,
        now_us: int,
        persons: int = 1,
    ) -> AccessDecision:
        """`persons` is how many want it."""
        if caller is None:
            raise UnauthenticatedError(NOT_ON_RECORD)
        if action in _ACTING and self._is_stale():
            raise UnavailableError(f"the access rules are too old to act on: {self.following.trouble}")
        decision = decide(self._current(), caller, action, device, profile, method, now_us, tenant_id)
        if decision.allowed:
            if decision.requires > persons:
                raise self._needs_second(caller, decision, action, device)
            return decision
        if isinstance(decision.reason, Refusal):
            raise UnauthenticatedError(worthless(caller, decision.reason))
        if is_device(device) and not self.may_read(caller, device, profile, method):
            raise DeviceNotFoundError(f"there is no device {device!a} that this key may know of")
        raise ForbiddenError(
            why(decision.reason, action, device, None if decision.rule is None else decision.rule.text)
        )

    def _needs_second(
        self, caller: Caller, decision: AccessDecision, action: Action, device: str
    ) -> NeedsSecondPersonError:
        self.check_proposer(caller)
        return NeedsSecondPersonError(
            f"{decision.requires} people must want {action} on {device!a}; a single command waits for the second one, "
            "and nothing else does",
            decision.within,
        )

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """By the rules of this moment."""
        if caller is None:
            return False
        return decide(self._current(), caller, Action.READ, device, profile, method, self._now_us()).allowed

    def may_read_some(self, caller: Caller | None, device: str) -> bool:
        """By the rules of this moment."""
        return caller is not None and may_read_some(self._current(), caller, device, self._now_us())

    @property
    def secret(self) -> str:
        """The id of the access directory, which all nodes read there, and which is shown to nobody."""
        return self._current().cluster_id

    def devices(self) -> Mapping[str, Device]:
        """The devices on record, by id; UnavailableError before anything was read."""
        return self._current().devices

    def tenant_of(self, device: str) -> str:
        """By the rules of this moment."""
        return self._current().tenancy.owner(device) or ""

    def has_tenant(self, tenant_id: str) -> bool:
        """Look for it in the rules of this moment."""
        return tenant_id in self._current().tenancy.ids

    def tenants(self) -> int:
        """The number of tenants by the rules of this moment; 0 before any are known."""
        return len(self._current().tenancy.ids) if self.following.known else 0

    def identity(self, caller: Caller | None) -> Identity:
        """By the rules of this moment."""
        snapshot, now_us = self._current(), self._now_us()
        standing = self._standing(caller, now_us)
        bindings = [grant.binding for subject in standing.subjects for grant in snapshot.grants.get(subject, ())]
        return Identity(
            principal=_called(standing, caller) or "",
            tenant=standing.tenant_id,
            key=None if standing.credential is None else standing.credential.id,
            expires_us=None if standing.expires_us == EVER else standing.expires_us,
            roles=tuple(one.role for one in bindings if one.expires_us is None or now_us < one.expires_us),
        )

    def who(self, caller: Caller | None) -> tuple[str | None, str | None]:
        """Return the id of the principal whose request it is, as far as that is known, and the public id of the key.

        A principal's id, or `oidc:<issuer>#<subject>` of a token that is nobody's on record.
        """
        if caller is None:
            return None, None
        credential = credential_of(self._current(), caller)
        if credential is not None:
            return credential.principal_id, caller.credential_id
        return caller.principal_id or caller.outsider, caller.credential_id

    def profile_of(self, device: str) -> str | None:
        """By the record of this moment."""
        found = self._current().devices.get(device)
        return None if found is None else found.profile

    @property
    def view(self) -> View:
        """The view that counts now; UnavailableError before anything was read."""
        return self.following.view

    async def refresh(self) -> View:
        """Take the directory's latest version as what counts, and give it.

        DirectoryUnavailableError at once while it is known to be away.
        """
        return await self.following.now()

    def _current(self) -> Snapshot:
        return self.following.view.snapshot

    def _is_stale(self) -> bool:
        return self._monotonic() - self.following.heard_at > self._stale

    def _now_us(self) -> int:
        return int(self._wall() * 1_000_000)


def _called(standing: CallerStanding, caller: Caller | None) -> str | None:
    """The principal's id; of somebody who is not on record, what their token calls them."""
    if standing.principal is not None:
        return standing.principal.id
    return None if caller is None else caller.outsider
