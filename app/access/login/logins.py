"""Logging in: a name and a password for a key that lasts half a day, and is listed and revoked as any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Final, Protocol

from app.access.administration import AccessAdministrator
from app.access.authority import Authority
from app.access.follower import View
from app.core.access.callers import EVER, Caller, CallerStanding
from app.core.access.changes import Change, Put, Remove, Revoke
from app.core.access.devices import is_device_principal
from app.core.access.identify import stand
from app.core.access.keys import Key, RandomBytes, by_key, make_key
from app.core.access.limits import Buckets
from app.core.access.model import Credential, Principal, Scheme
from app.core.access.rules import Limit
from app.core.access.snapshot import Snapshot
from app.core.clock import Clock, wall_us
from app.core.errors import EntryConflictError, ForbiddenError, InvalidInputError, RateLimitError, UnauthenticatedError
from app.runtime.telemetry import Counters

LIFE: Final = timedelta(hours=12)
MOST_LOGINS: Final = 20
"""The logins of one person at a time; the oldest one ends when there is another."""
ATTEMPTS: Final = Limit(5, 60_000_000, 5)
"""The attempts to log in of one person from one address."""
_MICROSECOND: Final = timedelta(microseconds=1)
_BY_HAND: Final = "no login has given this key: homing keys revoke ends keys that are made by hand"
_ENDED: Final = "the key of this login has ended meanwhile"
_WRONG: Final = "name or password is wrong"


class PasswordCheck(Protocol):
    """Knows passwords again."""

    async def check(self, password: str, kept: str | None, address: str) -> bool:
        """True if this is the password; takes as long for None, which is nobody's. CapacityError."""

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class IssuedLogin:
    """A key that was given for a password."""

    key: Key
    principal: str
    tenant: str | None
    expires_us: int


class Logins:
    """Gives keys for passwords, and ends them. How often somebody may try is counted on this node alone."""

    def __init__(
        self,
        rules: Authority,
        administration: AccessAdministrator,
        passwords: PasswordCheck,
        clock: Clock,
        random: RandomBytes,
        counters: Counters,
        *,
        per_address: int,
    ) -> None:
        """`per_address` is how many attempts of one address are looked at in a minute."""
        self._rules = rules
        self._administration = administration
        self._passwords = passwords
        self._clock = clock
        self._random = random
        self._counters = counters
        self._attempts: Final = Buckets()
        self._addresses: Final = Buckets()
        self._of_address: Final = Limit(per_address, 60_000_000, per_address)

    async def begin(self, name: str, password: str, tenant: str | None, address: str) -> IssuedLogin:
        """A key for the person of this name, or id.

        UnauthenticatedError when name or password is wrong or the person is disabled, and does not tell which;
        RateLimitError after too many attempts from this address, or for this person from there; CapacityError;
        NodeDrainingError; DirectoryUnavailableError when the key cannot be put on record.
        """
        self._rules.following.check_there()  # for every name alike, so that this tells nobody which ones there are
        person = _find(self._rules.view.snapshot, name, tenant)
        self._spend(address, _meant(name, tenant) if person is None else person.id)
        person = _find((await self._rules.refresh()).snapshot, name, tenant)  # a verb may have made them just now
        good = await self._passwords.check(password, None if person is None else person.password_hash, address)
        login = await self._give(person, name, tenant) if person is not None and good else None
        self._counters["login.refused" if login is None else "login.accepted"] += 1
        if login is None:
            raise UnauthenticatedError(_WRONG)
        return login

    async def begin_by_key(self, caller: Caller | None, address: str) -> IssuedLogin:
        """A login that may do what the key of the caller may, and ends with it.

        UnauthenticatedError when that key counts no more; InvalidInputError for a token; ForbiddenError for a device,
        which makes no keys; RateLimitError; DirectoryUnavailableError when it cannot be put on record.
        """
        shown = None if caller is None else caller.credential_id
        if caller is None or shown is None:
            raise InvalidInputError("key", "is none of Homing's: the tokens of an issuer begin no login")
        self._spend(address, shown)
        made: list[IssuedLogin] = []

        def decide(view: View) -> list[Change]:
            now_us = self._now_us()
            standing = stand(view.snapshot, caller)
            if not isinstance(standing, CallerStanding) or standing.credential is None or standing.principal is None:
                raise UnauthenticatedError(_ENDED)
            person, given = standing.principal, standing.credential
            if is_device_principal(person.id):
                raise ForbiddenError("a device has no session: whoever administers it logs in by a key of their own")
            end = min(now_us + LIFE // _MICROSECOND, standing.expires_us)
            made[:] = [IssuedLogin(make_key(self._random), person.id, person.tenant_id, end)]
            credential = _credential(made[0], max(now_us, person.not_before_us))
            name = given.name if given.scheme is Scheme.LOGIN else by_key(given.id)
            return [
                *_outlived(view.snapshot, person, now_us),
                Put(replace(credential, narrow=given.narrow, name=name)),
            ]

        await self._administration.change(caller, decide)
        self._counters["login.accepted"] += 1
        return made[0]

    async def end(self, caller: Caller) -> None:
        """Revoke the key that the caller has shown; EntryConflictError when no login has given it."""

        def decide(view: View) -> list[Change]:
            found = view.snapshot.credentials.get(caller.credential_id or "")
            if found is None or found.scheme is not Scheme.LOGIN:
                raise EntryConflictError(_BY_HAND)
            return [Revoke(credential_id=found.id, at_us=self._now_us())]

        await self._administration.change(caller, decide)
        self._counters["login.ended"] += 1

    async def close(self) -> None:
        """Check no more passwords."""
        self._passwords.close()

    def _spend(self, address: str, person: str) -> None:
        """RateLimitError. Buckets of addresses are apart, as made-up names make the others forget their oldest."""
        now_us = self._now_us()
        wait = self._addresses.take([(address, self._of_address, 1.0)], now_us)
        what = "from this address"
        if not wait:
            wait, what = self._attempts.take([(f"{address}\n{person}", ATTEMPTS, 1.0)], now_us), "with this name"
        if wait:
            self._counters["login.limited"] += 1
            raise RateLimitError(f"too many attempts {what}", wait)

    async def _give(self, checked: Principal, name: str, tenant: str | None) -> IssuedLogin | None:
        """A key for the person whose password was checked; None when they are that no more."""
        now_us = self._now_us()
        login = IssuedLogin(make_key(self._random), checked.id, checked.tenant_id, now_us + LIFE // _MICROSECOND)

        changes: list[Change] = []

        def decide(view: View) -> list[Change]:
            changes.clear()
            # This node may not have known yet of another password, or of the person's end.
            person = _find(view.snapshot, name, tenant)
            if person is not None and _is_still(person, checked):
                credential = _credential(login, max(now_us, person.not_before_us))  # clocks differ
                changes.extend((*_outlived(view.snapshot, person, now_us), Put(credential)))
            return changes

        person = Caller.of_login(checked.id, issued_us=EVER, expires_us=EVER)
        await self._administration.change(person, decide)
        return login if changes else None

    def _now_us(self) -> int:
        return wall_us(self._clock)


def _find(snapshot: Snapshot, name: str, tenant: str | None) -> Principal | None:
    """By id, else by name in the tenant."""
    found = snapshot.principals.get(name)
    if found is not None and tenant in (None, found.tenant_id):
        return found
    return next((one for one in snapshot.principals.values() if (one.name, one.tenant_id) == (name, tenant)), None)


def _meant(name: str, tenant: str | None) -> str:
    """The id that somebody would have who is not on record: what has an id and what has none is counted alike."""
    return name if tenant is None or name.startswith(f"{tenant}/") else f"{tenant}/{name}"


def _is_still(person: Principal, checked: Principal) -> bool:
    same = (person.id, person.password_hash) == (checked.id, checked.password_hash)
    return same and person.disabled_us is None


def _outlived(snapshot: Snapshot, person: Principal, now_us: int) -> Iterator[Change]:
    """Takes earlier logins away that count no more, or are too many: nobody else would."""
    logins = [one for one in snapshot.credentials.values() if one.scheme is Scheme.LOGIN]
    given = [one for one in logins if one.principal_id == person.id]
    given.sort(key=lambda one: (_counts(one, now_us), one.created_us))
    over = sum(not _counts(one, now_us) for one in given)
    for one in islice(given, max(over, len(given) - MOST_LOGINS + 1)):
        yield Remove(kind=Credential, id=one.id)


def _counts(one: Credential, now_us: int) -> bool:
    return one.revoked_us is None and one.expires_us is not None and now_us < one.expires_us


def _credential(login: IssuedLogin, now_us: int) -> Credential:
    return Credential(
        id=login.key.id,
        principal_id=login.principal,
        scheme=Scheme.LOGIN,
        name="login",
        digest=login.key.digest,
        created_us=now_us,
        expires_us=login.expires_us,
    )
