"""API keys for callers: everybody sees to their own, who administers a tenant to those of its people and services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.access.administration import AccessAdministrator
from app.access.follower import View
from app.core.access.admins import counts
from app.core.access.callers import Caller, CallerStanding
from app.core.access.changes import Change, Put
from app.core.access.devices import device_principal, is_device_principal
from app.core.access.endings import expiry, revocation
from app.core.access.identify import stand
from app.core.access.keys import Key
from app.core.access.model import Credential, Principal, Scheme
from app.core.errors import EntryConflictError, EntryNotFoundError, ForbiddenError, InvalidInputError
from app.core.identifiers import validate_device_id

MOST: Final = 100
"""Keys of one principal that count at the same time."""
_KEYS: Final = (Scheme.KEY, Scheme.LOGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """The key that a caller wants. None as `principal` is the caller, None as `days` is for ever.

    With `device` it is the key of that device, whose principal is made with the first one.
    """

    principal: str | None = None
    device: str | None = None
    label: str = ""
    narrow: tuple[str, ...] = ()
    days: int | None = 90


class KeyAdministrator:
    """`new_key` makes a key that nobody can guess."""

    def __init__(self, administration: AccessAdministrator, new_key: Callable[[], Key]) -> None:
        self._administration = administration
        self._new_key = new_key

    async def listed(self, caller: Caller | None) -> list[Credential]:
        """Return the keys that the caller may see to."""
        view = await self._administration.read()
        return [one for one in view.document.credentials if one.scheme in _KEYS and self._mine(caller, view, one)]

    async def create(self, caller: Caller | None, wanted: NewKey) -> tuple[Key, Credential]:
        """The key, which nobody can show again."""
        key = self._new_key()
        made: list[Credential] = []

        def decide(view: View) -> list[Change]:
            self._refuse_devices(caller)
            now_us = self._administration.now_us
            if wanted.device is None:
                owner = self._owner(caller, view, wanted.principal)
            else:
                owner = self._device(caller, view, wanted.device)
            self._check_room(view, owner.id)
            narrow = wanted.narrow or self._narrow_of(caller, view, owner.id)
            if narrow and is_device_principal(owner.id):
                raise InvalidInputError("narrow", "the key of a device meets no rules; allowed: none")
            made[:] = [
                _credential(key, owner.id, wanted.label or owner.name, narrow, now_us, _end(now_us, wanted.days))
            ]
            return [*([] if owner.id in view.snapshot.principals else [Put(owner)]), Put(made[0])]

        await self._administration.change(caller, decide)
        return key, made[0]

    async def rotate(
        self, caller: Caller | None, key_id: str, *, grace_us: int, days: int | None
    ) -> tuple[Key, Credential, Credential]:
        """A key that may do the same; the old one, which ends after `grace_us`, as do logins that it has begun."""
        key = self._new_key()
        made: list[Credential] = []

        def decide(view: View) -> list[Change]:
            self._refuse_devices(caller)
            now_us = self._administration.now_us
            old = self._find(caller, view, key_id)
            if old.scheme is Scheme.LOGIN:
                raise EntryConflictError("a login gave this key: log in again, or make a key")
            if not counts(old, now_us):
                raise EntryConflictError(f"key {key_id!a} counts no more: make a new one")
            self._check_room(view, old.principal_id)
            end = now_us + grace_us
            new = _credential(key, old.principal_id, old.name, old.narrow, now_us, _end(now_us, days))
            made[:] = [new, *expiry(old, view.document.credentials, end, now_us)]
            return [Put(one) for one in made]

        await self._administration.change(caller, decide)
        return key, made[0], made[1]

    async def revoke(self, caller: Caller | None, key_id: str) -> None:
        """End a key for ever, and the logins that it has begun; one that was revoked stays so."""

        def decide(view: View) -> list[Change]:
            key = self._find(caller, view, key_id)
            return revocation(key, view.document.credentials, self._administration.now_us)

        await self._administration.change(caller, decide)

    def _refuse_devices(self, caller: Caller | None) -> None:
        """ForbiddenError when a device asks: whoever steals its key must not have others when that one is revoked."""
        own = self._administration.principal_of(caller)
        if own is not None and is_device_principal(own.id):
            raise ForbiddenError("a device makes no keys: whoever administers it does")

    def _mine(self, caller: Caller | None, view: View, key: Credential) -> bool:
        own = self._administration.principal_of(caller)
        if own is not None and own.id == key.principal_id:
            return True
        owner = view.snapshot.principals.get(key.principal_id)
        return owner is not None and self._administration.administers(caller, owner.tenant_id)

    def _find(self, caller: Caller | None, view: View, key_id: str) -> Credential:
        found = view.snapshot.credentials.get(key_id)
        if found is None or found.scheme not in _KEYS or not self._mine(caller, view, found):
            # Somebody may have given the whole key, which must not come back.
            raise EntryNotFoundError("there is no key of this id that this caller may know of")
        return found

    def _owner(self, caller: Caller | None, view: View, name: str | None) -> Principal:
        own = self._administration.principal_of(caller)
        if own is not None and name in (None, own.id):
            return own
        if name is None:
            raise EntryConflictError("whoever is known by a token alone has no keys: name a principal")
        found = view.snapshot.principals.get(name)
        if found is None or not self._administration.administers(caller, found.tenant_id):
            self._administration.require_any(caller)
            raise EntryNotFoundError(f"there is no principal {name[:128]!a} that this caller may know of")
        return found

    def _device(self, caller: Caller | None, view: View, device: str) -> Principal:
        """The principal of a device.

        Of one that is not the caller's nobody is told whether it is another tenant's, or nobody's: EntryNotFoundError.
        """
        device_id, tenancy, ours = validate_device_id(device), view.snapshot.tenancy, self._administration
        owner = tenancy.owner(device_id)
        if not ours.administers(caller, None) and (owner is None or not ours.administers(caller, owner)):
            ours.require_any(caller)
            raise EntryNotFoundError(f"there is no device {device_id!a} that this caller may know of")
        return device_principal(view.document, tenancy, device_id, ours.now_us)

    def _narrow_of(self, caller: Caller | None, view: View, owner: str) -> tuple[str, ...]:
        """The restriction of a key of one's own that names none: that of the key in hand."""
        standing = None if caller is None else stand(view.snapshot, caller)
        if not isinstance(standing, CallerStanding) or standing.credential is None:
            return ()
        return standing.credential.narrow if standing.credential.principal_id == owner else ()

    def _check_room(self, view: View, owner: str) -> None:
        now_us = self._administration.now_us
        if sum(one.principal_id == owner and counts(one, now_us) for one in view.document.credentials) >= MOST:
            raise EntryConflictError(f"{owner!a} has {MOST} keys that count, which is the most: revoke one first")


def _end(now_us: int, days: int | None) -> int | None:
    return None if days is None else now_us + timedelta(days=days) // timedelta(microseconds=1)


def _credential(
    key: Key, owner: str, name: str, narrow: tuple[str, ...], now_us: int, expires_us: int | None
) -> Credential:
    return Credential(
        id=key.id,
        principal_id=owner,
        scheme=Scheme.KEY,
        name=name,
        digest=key.digest,
        narrow=narrow,
        created_us=now_us,
        expires_us=expires_us,
    )
