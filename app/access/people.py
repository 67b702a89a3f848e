"""Tenants, principals, roles and bindings for callers: one by one, and all of it as one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.access.access_file import (
    AccessFile,
    BindingBody,
    BindingInFile,
    PrincipalBody,
    PrincipalInFile,
    RoleBody,
    RoleInFile,
    TenantBody,
    TenantInFile,
    binding_id,
    binding_of,
    binding_part,
    file_of,
    principal_of,
    principal_part,
    role_part,
    tenant_of,
    tenant_part,
    wanted,
)
from app.access.administration import AccessAdministrator
from app.access.conditions import Precondition, tag_of
from app.access.follower import View
from app.core.access.callers import EVER, GROUP, Caller
from app.core.access.changes import Change, Put, Remove
from app.core.access.explain import explain
from app.core.access.model import Binding, Credential, Principal, Role, Tenant
from app.core.access.plan import differences, plan
from app.core.access.questions import AccessDecision, Question
from app.core.access.rules import BUILT_IN
from app.core.errors import EntryConflictError, EntryNotFoundError, InvalidInputError


class People:
    """Everything but keys and devices. What a caller does not administer is not there for them."""

    def __init__(self, administration: AccessAdministrator) -> None:
        self._administration = administration

    async def tenants(self, caller: Caller | None) -> list[TenantInFile]:
        """Return the tenants that the caller administers."""
        view = await self._read(caller)
        return [tenant_part(one) for one in view.document.tenants if self._may(caller, one.id)]

    async def tenant(self, caller: Caller | None, tenant_id: str) -> TenantInFile:
        """EntryNotFoundError."""
        for one in await self.tenants(caller):
            if one.id == tenant_id:
                return one
        raise _missing("tenant", tenant_id)

    async def put_tenant(
        self, caller: Caller | None, tenant_id: str, body: TenantBody, condition: Precondition
    ) -> tuple[TenantInFile, bool]:
        """Write a tenant, which says whose devices which are; the second value is true if it was not there."""
        part = TenantInFile(id=tenant_id, **body.model_dump())
        made: list[bool] = []

        def decide(view: View) -> list[Change]:
            self._administration.require(caller, None)
            known = {one.id: one for one in view.document.tenants}.get(tenant_id)
            condition.check(f"tenant {tenant_id!a}", None if known is None else tag_of(_json(tenant_part(known))))
            entry = tenant_of(part, view.document, self._administration.now_us)
            made[:] = [known is None]
            return [] if entry == known else [Put(entry)]

        await self._administration.change(caller, decide)
        return part.model_copy(update={"name": part.name or part.id}), made[0]

    async def remove_tenant(self, caller: Caller | None, tenant_id: str, condition: Precondition) -> None:
        """EntryConflictError while somebody or something belongs to it."""

        def decide(view: View) -> list[Change]:
            self._administration.require(caller, None)
            known = {one.id: one for one in view.document.tenants}.get(tenant_id)
            if known is None:
                raise _missing("tenant", tenant_id)
            condition.check(f"tenant {tenant_id!a}", tag_of(_json(tenant_part(known))))
            return [Remove(kind=Tenant, id=tenant_id)]

        await self._administration.change(caller, decide)

    async def principals(self, caller: Caller | None) -> list[PrincipalInFile]:
        """Return the principals that the caller administers."""
        view = await self._read(caller)
        return [principal_part(one) for one in view.document.principals if self._may(caller, one.tenant_id)]

    async def principal(self, caller: Caller | None, principal_id: str) -> PrincipalInFile:
        """EntryNotFoundError."""
        return principal_part(self._principal(caller, await self._read(caller), principal_id))

    async def put_principal(
        self, caller: Caller | None, principal_id: str, body: PrincipalBody, condition: Precondition
    ) -> tuple[PrincipalInFile, bool]:
        """A person or a service; whether it was not there. Who names no tenant means their own."""
        found: list[tuple[PrincipalInFile, bool]] = []

        def decide(view: View) -> list[Change]:
            known = view.snapshot.principals.get(principal_id)
            tenant = body.tenant if "tenant" in body.model_fields_set else self._administration.tenant_of(caller)
            if known is None or not self._may(caller, known.tenant_id):
                self._administration.require(caller, tenant)
                self._check_own_id(caller, tenant, "id", principal_id)
            if known is not None:
                self._principal(caller, view, principal_id)
                tenant = body.tenant if "tenant" in body.model_fields_set else known.tenant_id
            what = f"principal {principal_id!a}"
            condition.check(what, None if known is None else tag_of(_json(principal_part(known))))
            part = PrincipalInFile(**{**body.model_dump(), "id": principal_id, "tenant": tenant})
            entry = principal_of(part, view.document, self._administration.now_us)
            found[:] = [(principal_part(entry), known is None)]
            return [] if entry == known else [Put(entry)]

        await self._administration.change(caller, decide)
        return found[0]

    async def remove_principal(self, caller: Caller | None, principal_id: str, condition: Precondition) -> None:
        """Remove a principal with its keys and bindings."""

        def decide(view: View) -> list[Change]:
            known = self._principal(caller, view, principal_id)
            condition.check(f"principal {principal_id!a}", tag_of(_json(principal_part(known))))
            document = view.document
            bindings = [one.id for one in document.bindings if one.subject == principal_id]
            keys = [one.id for one in document.credentials if one.principal_id == principal_id]
            return [
                *[Remove(kind=Binding, id=one) for one in bindings],
                *[Remove(kind=Credential, id=one) for one in keys],
                Remove(kind=Principal, id=principal_id),
            ]

        await self._administration.change(caller, decide)

    async def bindings(self, caller: Caller | None, subject: str) -> list[BindingInFile]:
        """Return the bindings of a principal, or of `group:NAME`, in the tenants that the caller administers."""
        view = await self._read(caller)
        return [binding_part(one) for one in self._bindings(caller, view, subject)]

    async def put_bindings(
        self, caller: Caller | None, subject: str, bodies: Sequence[BindingBody], condition: Precondition
    ) -> list[BindingInFile]:
        """In the place of all that the caller may see."""
        found: list[BindingInFile] = []

        def decide(view: View) -> Sequence[Change]:
            current = self._bindings(caller, view, subject)
            condition.check(f"the bindings of {subject!a}", tag_of([_json(binding_part(one)) for one in current]))
            usual = self._usual_tenant(caller, view, subject)
            new = [binding_of(_of_subject(one, subject, usual)) for one in bodies]
            if len({one.id for one in new}) < len(new):
                raise EntryConflictError(f"two bindings of {subject!a} are alike: give one of them an id")
            kept = {one.id for one in current}
            others = {one.id for one in view.document.bindings} - kept
            for one in new:
                if one.id not in kept and one.id != binding_id(one.subject, one.role, one.tenant_id):
                    self._check_own_id(caller, one.tenant_id, "bindings", one.id)
            taken = next((one.id for one in new if one.id in others), None)
            if taken is not None:
                raise EntryConflictError(f"binding {taken!a} is somebody else's")
            found[:] = [binding_part(one) for one in new]
            after = replace(
                view.document, bindings=(*(one for one in view.document.bindings if one not in current), *new)
            )
            return plan(view.document, after)

        await self._administration.change(caller, decide)
        return found

    async def roles(self, caller: Caller | None) -> list[RoleInFile]:
        """Return the roles that the caller may bind: built in, of all tenants, and of those that they administer."""
        view = await self._read(caller)
        own = [one for one in view.document.roles if one.tenant_id is None or self._may(caller, one.tenant_id)]
        built_in = [Role(name=name, tenant_id=None, rules=rules) for name, rules in BUILT_IN.items()]
        return [role_part(one) for one in (*built_in, *own)]

    async def role(self, caller: Caller | None, name: str, tenant: str | None) -> RoleInFile:
        """EntryNotFoundError."""
        for one in await self.roles(caller):
            if (one.name, one.tenant) == (name, tenant):
                return one
        raise _missing("role", name)

    async def put_role(
        self, caller: Caller | None, name: str, body: RoleBody, condition: Precondition
    ) -> tuple[RoleInFile, bool]:
        """Its rules; whether it was not there. Who names no tenant means their own."""
        found: list[tuple[RoleInFile, bool]] = []

        def decide(view: View) -> list[Change]:
            tenant = body.tenant if "tenant" in body.model_fields_set else self._administration.tenant_of(caller)
            self._administration.require(caller, tenant)
            known = {(one.name, one.tenant_id): one for one in view.document.roles}.get((name, tenant))
            condition.check(f"role {name!a}", None if known is None else tag_of(_json(role_part(known))))
            entry = Role(name=name, tenant_id=tenant, rules=tuple(body.rules))
            found[:] = [(role_part(entry), known is None)]
            return [] if entry == known else [Put(entry)]

        await self._administration.change(caller, decide)
        return found[0]

    async def remove_role(self, caller: Caller | None, name: str, tenant: str | None, condition: Precondition) -> None:
        """EntryConflictError while it is bound."""

        def decide(view: View) -> list[Change]:
            self._administration.require(caller, tenant)
            known = {(one.name, one.tenant_id): one for one in view.document.roles}.get((name, tenant))
            if known is None:
                raise _missing("role", name)
            condition.check(f"role {name!a}", tag_of(_json(role_part(known))))
            if any(one.role == name and tenant in (None, one.tenant_id) for one in view.document.bindings):
                raise EntryConflictError(f"role {name!a} is still bound: take the bindings away first")
            return [Remove(kind=Role, id=name, tenant_id=tenant)]

        await self._administration.change(caller, decide)

    async def document(self, caller: Caller | None) -> AccessFile:
        """All of it, without keys and passwords, for who operates Homing."""
        view = await self._administration.read()
        self._administration.require(caller, None)
        return file_of(view.document)

    async def put_document(
        self, caller: Caller | None, file: AccessFile, condition: Precondition, *, dry_run: bool
    ) -> list[str]:
        """Make the directory what the file says; what comes (+), goes (-) and changes (~)."""
        lines: list[str] = []

        def decide(view: View) -> Sequence[Change]:
            self._administration.require(caller, None)
            condition.check("the access directory", tag_of(_json(file_of(view.document))))
            after = wanted(file, view.document, self._administration.now_us)
            lines[:] = differences(view.document, after)
            return plan(view.document, after)

        if dry_run:
            await self._administration.rehearse(caller, decide)
        else:
            await self._administration.change(caller, decide)
        return lines

    async def explain(self, caller: Caller | None, principal_id: str, question: Question) -> AccessDecision:
        """Explain whether a principal may do something, and why: one whom the caller administers."""
        view = await self._administration.read()
        self._principal(caller, view, principal_id)
        own = self._administration.principal_of(caller)
        if caller is not None and own is not None and own.id == principal_id:
            return explain(view.snapshot, caller, question, self._administration.now_us)
        asked = Caller.of_login(principal_id, issued_us=EVER, expires_us=EVER)
        return explain(view.snapshot, asked, question, self._administration.now_us)

    async def _read(self, caller: Caller | None) -> View:
        view = await self._administration.read()
        self._administration.require_any(caller)
        return view

    def _may(self, caller: Caller | None, tenant_id: str | None) -> bool:
        return self._administration.administers(caller, tenant_id)

    def _principal(self, caller: Caller | None, view: View, principal_id: str) -> Principal:
        found = view.snapshot.principals.get(principal_id)
        if found is None or not self._may(caller, found.tenant_id):
            self._administration.require_any(caller)
            raise _missing("principal", principal_id)
        return found

    def _check_own_id(self, caller: Caller | None, tenant: str | None, field: str, identity: str) -> None:
        """InvalidInputError for an id that only who operates Homing may choose.

        All tenants share the ids, so that each chooses among its own: nobody takes those of others, or learns of them.
        """
        if tenant is not None and not identity.startswith(f"{tenant}/") and not self._may(caller, None):
            raise InvalidInputError(
                field, f"{identity[:128]!a} does not begin with {f'{tenant}/'!a}, as ids of a tenant do"
            )

    def _usual_tenant(self, caller: Caller | None, view: View, subject: str) -> str | None:
        principal = view.snapshot.principals.get(subject)
        return self._administration.tenant_of(caller) if principal is None else principal.tenant_id

    def _bindings(self, caller: Caller | None, view: View, subject: str) -> list[Binding]:
        if not subject.startswith(GROUP):
            self._principal(caller, view, subject)
        return [one for one in view.document.bindings if one.subject == subject and self._may(caller, one.tenant_id)]


def _of_subject(body: BindingBody, subject: str, usual: str | None) -> BindingInFile:
    tenant = body.tenant if "tenant" in body.model_fields_set else usual
    return BindingInFile(**{**body.model_dump(), "subject": subject, "tenant": tenant})


def _json(part: object) -> object:
    return part.model_dump(mode="json") if hasattr(part, "model_dump") else part


def _missing(kind: str, name: str) -> EntryNotFoundError:
    return EntryNotFoundError(f"there is no {kind} {name[:128]!a} that this caller may know of")
