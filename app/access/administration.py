"""Changes of the access directory by callers: decided by what is on record now, and made all or not at all.

Whatever a change is, three things hold: it stays within the tenants that the caller administers, it gives nobody what
the caller has not, and somebody goes on to administer all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from app.access.authority import Authority
from app.access.follower import View
from app.access.origin import ASKING, RequestOrigin
from app.core.access.admins import check_admins
from app.core.access.callers import GROUP, Caller, CallerStanding
from app.core.access.changes import Change, Entry, Put, Remove, Revoke, identity_of
from app.core.access.decide import decide as decide_access
from app.core.access.escalation import check_gains, check_walls
from app.core.access.identify import stand
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Tenant
from app.core.access.plan import applied, entries_of
from app.core.access.rules import Action
from app.core.access.snapshot import Snapshot
from app.core.audit.chain import Author
from app.core.clock import Clock, wall_us
from app.core.errors import (
    DirectoryError,
    UnauthenticatedError,
    UnavailableError,
    VersionConflictError,
)
from app.store.directory import AccessDirectory

TRIES: Final = 10
"""The number of times that a change is decided again because somebody else was quicker."""

Decide = Callable[[View], Sequence[Change]]
"""Returns the changes to make, given the records; raises the error that keeps them from being made."""


class AccessAdministrator:
    """Reads and writes the directory that the authority follows."""

    def __init__(self, directory: AccessDirectory, authority: Authority, clock: Clock, *, audited: bool) -> None:
        """`audited`: each change is put into the audit, in its transaction."""
        self._audited = audited
        self._directory = directory
        self._authority = authority
        self._clock = clock

    async def read(self) -> View:
        """The directory as it is now, and not as it was half a second ago; DirectoryUnavailableError."""
        return await self._authority.refresh()

    async def change(self, caller: Caller | None, decide: Decide) -> View:
        """Make the changes that `decide` finds; the directory after them, by which this node decides from now on.

        VersionConflictError when others were quicker each time; DirectoryUnavailableError, also when nobody knows
        whether the change was made. Of devices, `decide` has to see to it that the caller may change them.
        """
        if caller is None:
            raise UnauthenticatedError("nobody knows who asks")
        for attempt in range(TRIES):
            view = await self._authority.refresh()
            changes = decide(view)
            if not changes:
                return view
            await self._check(caller, view, changes)
            try:
                author = self._author(caller)
                await self._directory.apply(changes, expected_version=view.document.version, author=author)
                break
            except VersionConflictError:
                if attempt == TRIES - 1:
                    raise
        with suppress(UnavailableError, DirectoryError):  # it is made, and is read with the next look
            await self._authority.refresh()
        return self._authority.view

    async def rehearse(self, caller: Caller | None, decide: Decide) -> None:
        """Raise what `change` would raise before it writes."""
        if caller is None:
            raise UnauthenticatedError("nobody knows who asks")
        view = await self._authority.refresh()
        await self._check(caller, view, decide(view))

    def administers(self, caller: Caller | None, tenant_id: str | None) -> bool:
        """True if the caller may administer this tenant; None is Homing itself."""
        now_us, snapshot = self.now_us, self._authority.view.snapshot
        return (
            caller is not None and decide_access(snapshot, caller, Action.ACCESS, "", "", "", now_us, tenant_id).allowed
        )

    def require(self, caller: Caller | None, tenant_id: str | None) -> None:
        """ForbiddenError when the caller does not administer this tenant."""
        self._authority.check(caller, Action.ACCESS, tenant_id=tenant_id)

    def require_any(self, caller: Caller | None) -> None:
        """ForbiddenError when the caller administers nothing at all."""
        tenants = [None, *self._authority.view.snapshot.tenancy.ids]
        if not any(self.administers(caller, one) for one in tenants):
            self.require(caller, self.tenant_of(caller))

    def principal_of(self, caller: Caller | None) -> Principal | None:
        """The principal of the caller, if they are on record."""
        standing = None if caller is None else stand(self._authority.view.snapshot, caller)
        return standing.principal if isinstance(standing, CallerStanding) else None

    def tenant_of(self, caller: Caller | None) -> str | None:
        """The tenant that the caller belongs to."""
        standing = None if caller is None else stand(self._authority.view.snapshot, caller)
        return standing.tenant_id if isinstance(standing, CallerStanding) else None

    @property
    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return wall_us(self._clock)

    def _author(self, caller: Caller) -> Author | None:
        if not self._audited:
            return None
        asking = ASKING.get() or RequestOrigin(caller, None, None)
        principal, key = self._authority.who(caller)
        return Author(
            principal=principal,
            tenant=self.tenant_of(caller),
            key=key,
            address=asking.address,
            agent=asking.shown_agent,
            at_us=self.now_us,
        )

    async def _check(self, caller: Caller, view: View, changes: Sequence[Change]) -> None:
        now_us = self.now_us
        check_walls(view.snapshot, changes, caller, now_us)
        if all(_kind(one) is Device for one in changes):
            return  # a record of a device gives no rights, and can be read whatever it says
        own = self.principal_of(caller)
        for tenant_id in _concerned(view.document, changes, None if own is None else own.id):
            self.require(caller, tenant_id)
        after = applied(view.document, changes)
        snapshot = await asyncio.to_thread(Snapshot.of, after)
        check_gains(view.snapshot, snapshot, caller, now_us)
        check_admins(view.document, after, now_us)


def _kind(change: Change) -> type[Entry]:
    match change:
        case Put(entry=entry):
            return type(entry)
        case Remove(kind=kind):
            return kind
        case Revoke():
            return Credential


def _concerned(document: Document, changes: Sequence[Change], own: str | None) -> Iterator[str | None]:
    """The tenants whose entries these are, before or after. Everybody may see to their own keys."""
    tenants = {one.id: one.tenant_id for one in document.principals}
    new = [one.entry for one in changes if isinstance(one, Put) and isinstance(one.entry, Principal)]
    tenants |= {one.id: one.tenant_id for one in new}
    for entry in _entries(document, changes):
        match entry:
            case Tenant():
                yield None
            case Principal() | Role():
                yield entry.tenant_id
            case Credential():
                if entry.principal_id != own:
                    yield tenants.get(entry.principal_id)
            case Binding():
                yield entry.tenant_id
                if not entry.subject.startswith(GROUP):
                    yield tenants.get(entry.subject)


def _entries(document: Document, changes: Sequence[Change]) -> Iterator[Entry]:
    """The entries that the changes are about, as they are on record, and as they are going to be."""
    known = {kind: entries_of(document, kind) for kind in {_kind(one) for one in changes} - {Device}}
    for change in changes:
        kind = _kind(change)
        if kind is Device:
            continue
        if isinstance(change, Put):
            yield change.entry
        old = known[kind].get((kind, *_identity(change)))
        if old is not None:
            yield old


def _identity(change: Change) -> tuple[str, str | None]:
    match change:
        case Put(entry=entry):
            return identity_of(entry)
        case Remove():
            return change.id, change.tenant_id
        case Revoke():
            return change.credential_id, None
