"""The audit for callers: lines of what they may know, and whether anybody has changed it."""

from __future__ import annotations

import asyncio
from typing import Final

from app.access.administration import AccessAdministrator
from app.access.authority import Authority
from app.audit.verification import Verification, verify, why_empty
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.store.audit import AuditQuery, AuditSlice, AuditStore


class AuditReader:
    """Reads; nobody writes here."""

    def __init__(self, store: AuditStore, authority: Authority, administration: AccessAdministrator) -> None:
        self._store = store
        self._authority = authority
        self._administration = administration
        self._verifying: Final = asyncio.Lock()

    async def page(self, caller: Caller | None, query: AuditQuery) -> AuditSlice:
        """The newest first. Who belongs to a tenant reads what is told of it."""
        tenant = self._administration.tenant_of(caller)
        self._authority.check(caller, Action.AUDIT, tenant_id=tenant)
        self._authority.following.check_there()
        return await self._store.page(query if tenant is None else query._replace(tenant=tenant))

    async def verify(self, caller: Caller | None) -> tuple[Verification, str | None]:
        """All of it, one caller at a time; for who operates Homing. And what is to be said where it is empty."""
        self._authority.check(caller, Action.AUDIT)
        self._authority.following.check_there()
        async with self._verifying:
            found = await verify(self._store)
        return found, why_empty(self._authority.view.document.version) if found.empty else None
