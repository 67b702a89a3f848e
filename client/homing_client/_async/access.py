"""Access: keys, people and services, roles, tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from homing_client._answers import body_of, entry_of, nothing_of
from homing_client._async.session import AsyncSession
from homing_client._node_models import Entry
from homing_client._operations import JsonObject, changed, duration, given
from homing_client._wire import Request


class AsyncAccess:
    """The access directory of a cluster, as far as the caller may see and change it. `AsyncHoming.access`.

    Values are the JSON that /docs describes. What can be changed comes as an Entry: give its `tag` as `if_match`, and
    the change is made only if nobody else was faster; else it raises ConflictError.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def keys(self) -> list[JsonObject]:
        """List the API keys that the caller may see, without their secrets."""
        return await self._session.every("/v1/keys", "keys")

    async def make_key(
        self,
        *,
        principal: str | None = None,
        device: str | None = None,
        label: str | None = None,
        narrow: Sequence[str] | None = None,
        days: int | None = None,
        never: bool = False,
    ) -> JsonObject:
        """Create a key, for the caller unless `principal` or `device` names another one. `key` is shown only once."""
        body = given(principal=principal, device=device, label=label, narrow=narrow, days=days, never=never or None)
        return body_of(await self._session.exchange(Request("POST", "/v1/keys", body=body, repeatable=False)))

    async def rotate_key(
        self, key_id: str, *, grace: timedelta | str | None = None, days: int | None = None, never: bool = False
    ) -> JsonObject:
        """Create a key with the same rights. The old key stays valid for `grace`."""
        body = given(grace=None if grace is None else duration(grace), days=days, never=never or None)
        path = {"key_id": key_id}
        asked = Request("POST", "/v1/keys/{key_id}/rotate", path=path, body=body, repeatable=False)
        return body_of(await self._session.exchange(asked))

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key for good."""
        asked = Request("DELETE", "/v1/keys/{key_id}", path={"key_id": key_id}, repeatable=False)
        nothing_of(await self._session.exchange(asked))

    async def tenants(self) -> list[JsonObject]:
        """List all tenants."""
        return await self._session.every("/v1/tenants", "tenants")

    async def tenant(self, tenant_id: str) -> Entry:
        """Show a tenant. Raises NotFoundError. Nodes of version 0.2 can only list all tenants."""
        asked = Request("GET", "/v1/tenants/{tenant_id}", path={"tenant_id": tenant_id})
        return entry_of(await self._session.exchange(asked))

    async def put_tenant(self, tenant_id: str, body: Mapping[str, Any], *, if_match: str | None = None) -> Entry:
        """Create or replace a tenant."""
        asked = changed("PUT", "/v1/tenants/{tenant_id}", {"tenant_id": tenant_id}, body, if_match)
        return entry_of(await self._session.exchange(asked))

    async def remove_tenant(self, tenant_id: str, *, if_match: str | None = None) -> None:
        """Delete a tenant."""
        asked = changed("DELETE", "/v1/tenants/{tenant_id}", {"tenant_id": tenant_id}, None, if_match)
        nothing_of(await self._session.exchange(asked))

    async def principals(self) -> list[JsonObject]:
        """List all people and services."""
        return await self._session.every("/v1/principals", "principals")

    async def principal(self, principal_id: str) -> Entry:
        """Show a person or service."""
        path = {"principal_id": principal_id}
        return entry_of(await self._session.exchange(Request("GET", "/v1/principals/{principal_id}", path=path)))

    async def put_principal(self, principal_id: str, body: Mapping[str, Any], *, if_match: str | None = None) -> Entry:
        """Create or replace a person or service."""
        asked = changed("PUT", "/v1/principals/{principal_id}", {"principal_id": principal_id}, body, if_match)
        return entry_of(await self._session.exchange(asked))

    async def remove_principal(self, principal_id: str, *, if_match: str | None = None) -> None:
        """Delete a person or service, with all their keys."""
        asked = changed("DELETE", "/v1/principals/{principal_id}", {"principal_id": principal_id}, None, if_match)
        nothing_of(await self._session.exchange(asked))

    async def bindings(self, subject: str) -> Entry:
        """List the roles of a person or service, and on which devices they have them."""
        path = {"subject": subject}
        return entry_of(await self._session.exchange(Request("GET", "/v1/principals/{subject}/bindings", path=path)))

    async def put_bindings(
        self, subject: str, bindings: Sequence[Mapping[str, Any]], *, if_match: str | None = None
    ) -> Entry:
        """Replace the roles of a person or service."""
        body = {"bindings": list(bindings)}
        asked = changed("PUT", "/v1/principals/{subject}/bindings", {"subject": subject}, body, if_match)
        return entry_of(await self._session.exchange(asked))

    async def roles(self) -> list[JsonObject]:
        """List all roles."""
        return await self._session.every("/v1/roles", "roles")

    async def role(self, name: str, *, tenant: str | None = None) -> Entry:
        """Show a role."""
        asked = Request("GET", "/v1/roles/{name}", path={"name": name}, query={"tenant": tenant})
        return entry_of(await self._session.exchange(asked))

    async def put_role(
        self, name: str, rules: Sequence[str], *, tenant: str | None = None, if_match: str | None = None
    ) -> Entry:
        """Create or replace a role. Its rules are lines such as `allow send dji:cover_* on dock-*`."""
        body = given(rules=list(rules), tenant=tenant)
        return entry_of(
            await self._session.exchange(changed("PUT", "/v1/roles/{name}", {"name": name}, body, if_match))
        )

    async def remove_role(self, name: str, *, tenant: str | None = None, if_match: str | None = None) -> None:
        """Delete a role."""
        asked = changed("DELETE", "/v1/roles/{name}", {"name": name}, None, if_match, {"tenant": tenant})
        nothing_of(await self._session.exchange(asked))

    async def export(self) -> Entry:
        """Export the whole directory as one document, without keys and passwords."""
        return entry_of(await self._session.exchange(Request("GET", "/v1/access")))

    async def apply(
        self, document: Mapping[str, Any], *, dry_run: bool = False, if_match: str | None = None
    ) -> JsonObject:
        """Apply a document to the directory in one change, and return what is added, removed and changed."""
        query = {"dry_run": "true" if dry_run else None}
        return body_of(await self._session.exchange(changed("PUT", "/v1/access", {}, document, if_match, query)))

    async def check(
        self,
        principal: str,
        action: str,
        *,
        device: str | None = None,
        profile: str | None = None,
        method: str | None = None,
        tenant: str | None = None,
    ) -> JsonObject:
        """Check whether a principal may do something (`send`, say), by which rule, and which rules nearly allow it."""
        body = given(principal=principal, action=action, device=device, profile=profile, method=method, tenant=tenant)
        return body_of(await self._session.exchange(Request("POST", "/v1/access/check", body=body)))

    async def audit(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        who: str | None = None,
        device: str | None = None,
    ) -> AsyncIterator[JsonObject]:
        """List who asked for what, and how it ended, newest first."""
        cursor: str | None = None
        while True:
            query = {"since": since, "until": until, "who": who, "device": device, "cursor": cursor}
            page = body_of(await self._session.exchange(Request("GET", "/v1/audit", query=query)))
            for line in page.get("lines") or ():
                yield line
            cursor = page.get("cursor")
            if cursor is None:
                return

    async def verify_audit(self) -> JsonObject:
        """Check the audit log for tampering."""
        return body_of(await self._session.exchange(Request("GET", "/v1/audit/verify", patience=300.0)))
