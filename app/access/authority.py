"""Who may do what on this node: decided from a snapshot in memory, which follows the access directory.

No request waits for the directory (docs/adr/0036). While it is away, the last snapshot counts; a node that has not
heard from it for `stale` seconds goes on reading, and sends nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from app.core.access.callers import EVER, Caller, Refusal, TokenFault
from app.core.access.decide import decide
from app.core.access.identify import identify_key, stand, standing_at, standing_of
from app.core.access.keys import PREFIX
from app.core.access.limits import Buckets, Shares
from app.core.access.model import Document
from app.core.access.questions import Decision, Reason
from app.core.access.rules import Action, Per, Rule
from app.core.access.snapshot import Snapshot
from app.core.clock import Clock
from app.core.errors import (
    DeviceNotFoundError,
    DirectoryError,
    ForbiddenError,
    ForeignDirectoryError,
    HomingError,
    InvalidInputError,
    NeedsSecondPersonError,
    RateLimitError,
    UnauthenticatedError,
    UnavailableError,
)
from app.observability import Counters
from app.store.directory import AccessDirectory

AGREE_SECONDS: Final = 30.0
"""How often the cluster is asked which directory it has."""
TOUCH_SECONDS: Final = 30.0
"""How often the directory is told which keys were used."""
_ACTING: Final = frozenset({Action.SEND, Action.CANCEL, Action.APPROVE, Action.OVERRIDE, Action.FLEET, Action.ACCESS})
_WORTHLESS: Final[Mapping[Refusal, str]] = MappingProxyType(
    {
        Refusal.MALFORMED: "does not have the form of one",
        Refusal.TYPO: "has a wrong checksum: it was mistyped, or something is missing",
        Refusal.UNKNOWN: "is unknown",
        Refusal.EXPIRED: "has expired",
        Refusal.REVOKED: "was revoked",
        Refusal.DISABLED: "belongs to somebody who was disabled",
    }
)
_NO_TOKEN: Final[Mapping[TokenFault, str]] = MappingProxyType(
    {
        TokenFault.MALFORMED: "does not have the form of one",
        TokenFault.ALGORITHM: "is signed in a way that is not allowed, or not with this key",
        TokenFault.UNKNOWN_KEY: "is signed with a key that its issuer did not have when it was asked last",
        TokenFault.NO_KEYS: "cannot be checked: the keys of its issuer are not known",
        TokenFault.SIGNATURE: "has a wrong signature",
        TokenFault.ISSUER: "is of another issuer than the one of HOMING_OIDC_ISSUER",
        TokenFault.AUDIENCE: "is for somebody else: HOMING_OIDC_AUDIENCE is not in its aud",
        TokenFault.EXPIRED: "has expired",
        TokenFault.NOT_YET: "does not count yet",
        TokenFault.LIFE: "is valid for longer than a day",
        TokenFault.CLAIMS: "lacks a claim that is needed, or has one of a wrong form",
    }
)
_NOT_ON_RECORD: Final = "send Authorization: Bearer with an API key; homing keys create makes one"


class TokenCheck(Protocol):
    """Knows tokens of an issuer."""

    def verify(self, text: str) -> Caller | TokenFault:
        """Who has shown the token, or why it counts for nothing."""


class Access(Protocol):
    """What the API asks before it does anything for anybody."""

    def caller(self, authorization: bytes | None) -> Caller | None:
        """Who sends this header; None where nobody is asked. UnauthenticatedError says why it counts for nothing."""

    def check(
        self,
        caller: Caller | None,
        action: Action,
        device: str = "",
        profile: str = "",
        method: str = "",
        tenant_id: str | None = None,
    ) -> None:
        """Return when the caller may. `tenant_id` counts where there is no device: None is Homing itself.

        UnauthenticatedError when the credential has lost its worth meanwhile, DeviceNotFoundError when the caller may
        not even know of the device, ForbiddenError otherwise; UnavailableError when the rules are too old to act on.
        """

    def spend(self, caller: Caller | None, action: Action, device: str, profile: str, method: str) -> None:
        """`check`, and count it: RateLimitError when the caller has done so as often as the rules allow."""

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """Whether the caller may know of this command."""

    def identity(self, caller: Caller | None) -> Identity | None:
        """Who the caller is; None where nobody is asked. UnauthenticatedError."""

    def profile_of(self, device: str) -> str | None:
        """The profile that is on record for a device, where one is."""

    def tenant_of(self, device: str) -> str:
        """To whom the device belongs; "" where nobody is asked, or nobody owns it."""


@dataclass(frozen=True, slots=True)
class View:
    """The directory as a node knows it."""

    document: Document
    snapshot: Snapshot
    """Of the document."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller, as they may know themselves."""

    principal: str
    tenant: str | None
    """None: who operates Homing itself."""
    key: str | None
    """The public id of the key."""
    expires_us: int | None
    """Microseconds since 1970, UTC; None: never."""
    roles: tuple[str, ...]


class Everybody:
    """Asks nobody."""

    def caller(self, authorization: bytes | None) -> Caller | None:
        """None: nobody is asked."""
        del authorization
        return None

    def check(
        self,
        caller: Caller | None,
        action: Action,
        device: str = "",
        profile: str = "",
        method: str = "",
        tenant_id: str | None = None,
    ) -> None:
        """Return."""

    def spend(self, caller: Caller | None, action: Action, device: str, profile: str, method: str) -> None:
        """Return."""

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """True."""
        del caller, device, profile, method
        return True

    def identity(self, caller: Caller | None) -> Identity | None:
        """None."""
        del caller
        return None

    def profile_of(self, device: str) -> str | None:
        """None: nothing is on record."""
        del device
        return None

    def tenant_of(self, device: str) -> str:
        """Nobody: there are no tenants."""
        del device
        return ""


class Authority:
    """Decides by the latest snapshot; `run` keeps it up to date, looking for a new version every `interval` seconds.

    `prepare` is done first, again and again until it succeeds. `changed` is called whenever another snapshot counts;
    `agreed` tells which directory the cluster has, this one where none is known; `nodes` tells how many share the
    limits; after `stale` seconds without the directory nobody may act any more.
    """

    def __init__(
        self,
        directory: AccessDirectory,
        clock: Clock,
        *,
        prepare: Callable[[], Awaitable[None]],
        interval: float,
        stale: float,
        nodes: Callable[[], int],
        changed: Callable[[], None],
        agreed: Callable[[str], Awaitable[str]],
        counters: Counters,
        tokens: TokenCheck | None = None,
    ) -> None:
        self._directory = directory
        self._prepare = prepare
        self._clock = clock
        self._interval = interval
        self._stale = stale
        self._changed = changed
        self._agreed = agreed
        self._agreed_at = clock.monotonic()
        self._counters = counters
        self._tokens = tokens
        self._buckets: Final = Buckets()
        self.shares: Final = Shares(nodes)
        """This node's parts of limits."""
        self._view: View | None = None
        self._refreshing: Final = asyncio.Lock()
        self._heard_at = clock.monotonic()
        self._trouble = "the access directory was not read yet"
        self._used: dict[str, int] = {}
        self._touched_at = clock.monotonic()
        self._log = structlog.get_logger()

    @property
    def health(self) -> str:
        """`ok`, or a sentence. A directory that is away harms nobody as long as there is a snapshot."""
        return "ok" if self._view is not None and not self._is_stale() else self._trouble

    def caller(self, authorization: bytes | None) -> Caller:
        """Whoever the key belongs to, or the token is about."""
        scheme, _, text = (authorization or b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError(_NOT_ON_RECORD)
        text = text.strip()
        if self._tokens is not None and not text.startswith(PREFIX):
            return self._of_token(text, self._tokens)
        now_us = self._now_us()
        found = identify_key(self._current(), text, now_us)
        if isinstance(found, Refusal):
            raise UnauthenticatedError(f"the API key {_WORTHLESS[found]}")
        if found.credential_id is not None:
            self._used[found.credential_id] = now_us
        return found

    def _of_token(self, text: str, tokens: TokenCheck) -> Caller:
        """Whoever the token is about, if the rules of this moment count them."""
        found = tokens.verify(text)
        if isinstance(found, TokenFault):
            self._counters[f"token.{found}"] += 1
            if found is TokenFault.NO_KEYS:
                raise UnavailableError(f"the token {_NO_TOKEN[found]}")
            raise UnauthenticatedError(f"the token {_NO_TOKEN[found]}")
        standing = standing_of(self._current(), found)
        if isinstance(standing, Refusal):
            raise UnauthenticatedError(_worthless(found, standing))
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
        self._judge(caller, action, device, profile, method, tenant_id)

    def spend(self, caller: Caller | None, action: Action, device: str, profile: str, method: str) -> None:
        """By the rules of this moment, of whose limits this node has its share."""
        decision = self._judge(caller, action, device, profile, method)
        if decision.limits and caller is not None:
            wanted = [(one.limit, self._bucket(caller, one, device)) for one in decision.limits]
            shared = [(key, limit, self.shares.ask(key)) for limit, key in wanted if limit is not None]
            wait = self._buckets.take(shared, self._now_us())
            if wait:
                rules = ", ".join(rule.text for rule in decision.limits)
                raise RateLimitError(f"limited by {rules}", wait, str(action), _policies(decision.limits))

    def _bucket(self, caller: Caller, rule: Rule, device: str) -> str:
        """The name of what is emptied: who shares the limit, and the rule."""
        return f"{self._sharing(caller, rule, device)}\n{rule.name}"

    def _sharing(self, caller: Caller, rule: Rule, device: str) -> str:
        per = Per.PRINCIPAL if rule.limit is None else rule.limit.per
        if per is Per.DEVICE:
            return f"device\n{device}"
        standing = standing_of(self._current(), caller)
        if isinstance(standing, Refusal):  # judged a moment ago, so this cannot be; then nobody shares it
            return "nobody"
        if per is Per.TENANT:
            return f"tenant\n{standing.tenant_id or ''}"
        if standing.principal is None:
            return f"subject\n{caller.issuer}\n{caller.subject}"
        return f"principal\n{standing.principal.id}"

    def _judge(
        self,
        caller: Caller | None,
        action: Action,
        device: str,
        profile: str,
        method: str,
        tenant_id: str | None = None,
    ) -> Decision:
        if caller is None:
            raise UnauthenticatedError(_NOT_ON_RECORD)
        if action in _ACTING and self._is_stale():
            raise UnavailableError(f"the access rules are too old to act on: {self._trouble}")
        decision = decide(self._current(), caller, action, device, profile, method, self._now_us(), tenant_id)
        if decision.allowed:
            if decision.requires > 1:
                raise NeedsSecondPersonError(
                    f"{decision.requires} people must want {action} on {device!a}, and this version lets nobody approve"
                )
            return decision
        if isinstance(decision.reason, Refusal):
            raise UnauthenticatedError(_worthless(caller, decision.reason))
        if device and not self.may_read(caller, device, profile, method):
            raise DeviceNotFoundError(f"there is no device {device!a} that this key may know of")
        raise ForbiddenError(
            _why(decision.reason, action, device, None if decision.rule is None else decision.rule.text)
        )

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """By the rules of this moment."""
        if caller is None:
            return False
        return decide(self._current(), caller, Action.READ, device, profile, method, self._now_us()).allowed

    def tenant_of(self, device: str) -> str:
        """By the rules of this moment."""
        return self._current().tenancy.owner(device) or ""

    def identity(self, caller: Caller | None) -> Identity:
        """By the rules of this moment."""
        snapshot, now_us = self._current(), self._now_us()
        standing = standing_at(now_us, stand(snapshot, caller or Caller()))
        if isinstance(standing, Refusal):
            raise UnauthenticatedError(_worthless(caller, standing))
        bindings = [grant.binding for subject in standing.subjects for grant in snapshot.grants.get(subject, ())]
        return Identity(
            principal=caller.subject or "" if caller and standing.principal is None else standing.subjects[0],
            tenant=standing.tenant_id,
            key=None if standing.credential is None else standing.credential.id,
            expires_us=None if standing.expires_us == EVER else standing.expires_us,
            roles=tuple(one.role for one in bindings if one.expires_us is None or now_us < one.expires_us),
        )

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        started = False
        while True:
            try:
                if not started:
                    await self._prepare()
                    started = True
                view = await self.refresh()
                await self._touch()
                if self._clock.monotonic() - self._agreed_at >= AGREE_SECONDS:
                    await self._agree(view.document.cluster_id)
            except (UnavailableError, DirectoryError, InvalidInputError) as error:
                self._fail(error)
            await asyncio.sleep(self._interval)

    async def refresh(self) -> View:
        """Take the directory's latest version as what counts, and give it."""
        async with self._refreshing:  # an older version never takes the place of a newer one
            view = await self._read()
            fresh, self._view = view is not self._view, view
            self._trouble = ""
            self._heard_at = self._clock.monotonic()
        if fresh:  # only now, as nobody may act by rules that are too old
            self._changed()
        return view

    async def _read(self) -> View:
        view = self._view
        if view is not None and await self._directory.version() == view.document.version:
            return view
        document = await self._directory.read(None if view is None else view.document)
        if view is not None and document.cluster_id != view.document.cluster_id:
            raise DirectoryError("the access directory is another one than before; the node goes on with the old rules")
        if view is None:
            await self._agree(document.cluster_id)
        snapshot = await asyncio.to_thread(Snapshot.of, document)
        self._log.info("access_rules_read", version=document.version)
        return View(document, snapshot)

    async def _agree(self, own: str) -> None:
        """Return when the cluster has this directory; ForeignDirectoryError. The store may have lost it meanwhile."""
        others = await self._agreed(own)
        if others != own:
            raise ForeignDirectoryError(
                f"the other nodes on this store have another access directory ({others[:8]}…) than this one "
                f"({own[:8]}…), and a key that is revoked there would go on counting here: give all nodes the same "
                "HOMING_ACCESS_URL; if it was replaced on purpose, stop all nodes, and remove the field directory of "
                "mqtt:cluster in Redis"
            )
        self._agreed_at = self._clock.monotonic()

    async def close(self) -> None:
        """Tell the directory which keys were used."""
        await self._touch(at_once=True)

    async def _touch(self, *, at_once: bool = False) -> None:
        now = self._clock.monotonic()
        if self._used and (at_once or now - self._touched_at >= TOUCH_SECONDS):
            used, self._used, self._touched_at = self._used, {}, now
            try:
                await self._directory.touch(used)
            except HomingError:
                self._used = used | self._used  # it waits until the directory is back
                raise

    def _fail(self, error: HomingError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warning("access_rules_not_read", reason=self._trouble)

    def who(self, caller: Caller | None) -> tuple[str | None, str | None]:
        """The principal of a caller, as far as it is known, and the public id of the key."""
        if caller is None:
            return None, None
        credential = self._current().credentials.get(caller.credential_id or "")
        known = caller.principal_id or caller.subject if credential is None else credential.principal_id
        return known, caller.credential_id

    def profile_of(self, device: str) -> str | None:
        """By the record of this moment."""
        found = self._current().devices.get(device)
        return None if found is None else found.profile

    @property
    def view(self) -> View:
        """What counts now; UnavailableError before anything was read."""
        if self._view is None:
            raise UnavailableError(f"this node does not know yet who may do what: {self._trouble}")
        return self._view

    def _current(self) -> Snapshot:
        view = self._view
        return self.view.snapshot if view is None else view.snapshot  # the first raises

    def _is_stale(self) -> bool:
        return self._clock.monotonic() - self._heard_at > self._stale

    def _now_us(self) -> int:
        return int(self._clock.wall() * 1_000_000)


def _policies(limits: Iterable[Rule]) -> tuple[tuple[int, int], ...]:
    """How often in how many seconds, by each of these rules."""
    return tuple((one.limit.count, one.limit.per_us // 1_000_000) for one in limits if one.limit is not None)


def _worthless(caller: Caller | None, refusal: Refusal) -> str:
    what = "the API key" if caller is None or caller.issuer is None else "the token"
    return f"{what} {_WORTHLESS[refusal]}"


def _why(reason: Reason, action: Action, device: str, rule: str | None) -> str:
    about = f"{action} on {device!a}" if device else str(action)
    match reason:
        case Reason.DENIED:
            return f"{about} is denied by the rule: {rule}"
        case Reason.NARROWED:
            return f"{about} is not among what this key was narrowed to"
        case Reason.FOREIGN:
            return f"{about} belongs to another tenant"
        case _:
            return f"{about} is allowed by no rule"
