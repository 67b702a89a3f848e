"""Tenants, principals, their bindings, and roles over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

import orjson
from fastapi import Depends, Path, Query, Request
from fastapi import Response as Reply
from pydantic import BaseModel, StringConstraints
from pydantic.json_schema import SkipJsonSchema
from starlette.convertors import PathConvertor, register_url_convertor

from app.access.access_file import (
    PrincipalBody,
    PrincipalInFile,
    RoleBody,
    RoleInFile,
    TenantBody,
    TenantInFile,
)
from app.access.conditions import tag_of
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import Asker, Records, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.pages import Listing
from app.api.parameters import MOST_LISTED, ListCursor, ListLimit, check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1.access_models import Bindings, BindingsBody, Principals, Roles, Tenants
from app.core import errors
from app.core.access.rules import BUILT_IN, Action
from app.core.errors import InvalidInputError

_TAG: Final = {"ETag": header("The version of this record, for `If-Match`.")}
_READING: Final = (
    BY_ERROR[errors.NoDirectoryError],
    BY_ERROR[errors.EntryNotFoundError],
    problems.INVALID,
    problems.ACCESS_STORE_AWAY,
)
_CHANGING: Final = (
    *_READING,
    BY_ERROR[errors.EntryConflictError],
    BY_ERROR[errors.PreconditionFailedError],
    BY_ERROR[errors.VersionConflictError],
)
_ACTS: Final = acts(Action.ACCESS)

router = GuardedRouter(prefix="/v1", tags=["access"])

_ID: Final = "^.{1,128}$"


class _PrincipalConvertor(PathConvertor):
    """An id that may have slashes, and is not the path of what is given to somebody: each has its own methods."""

    regex = ".*(?<!/bindings)"


register_url_convertor("principal", _PrincipalConvertor())
TenantId = Annotated[str, Path(description="The id of the tenant.", examples=["north"], pattern=_ID)]
PrincipalId = Annotated[
    str, Path(description="The id of the person or service; it may contain slashes.", examples=["ci"], pattern=_ID)
]
Subject = Annotated[
    str,
    Path(
        description="The id of a principal, or `group:NAME` for a group that tokens name.",
        examples=["group:night shift"],
        pattern=_ID,
    ),
]
RoleName = Annotated[str, Path(description="The name of the role.", examples=["pilot"], pattern=_ID)]
OfTenant = Annotated[
    Annotated[str, StringConstraints(pattern=_ID)] | SkipJsonSchema[None],
    Query(description="The tenant of the role. Without it, the role belongs to all tenants.", examples=["north"]),
]


async def _listed(
    request: Request, limit: ListLimit = MOST_LISTED, cursor: ListCursor = None
) -> tuple[int, str | None]:
    """The part of a list that is asked for."""
    check_names(request, ("limit", "cursor"))
    return limit, cursor


Listed = Annotated[tuple[int, str | None], Depends(_listed)]
T = TypeVar("T", bound=BaseModel)
Route = TypeVar("Route", bound=Callable[..., object])
_BUILT_IN: Final = tuple(BUILT_IN)


def _lists(path: str, summary: str, model: type[BaseModel], description: str) -> Callable[[Route], Route]:
    return router.get(
        path,
        summary=summary,
        response_model=model,
        response_description=description,
        responses=problems_of(*_READING),
        openapi_extra=_ACTS,
    )


def _reads(path: str, summary: str, model: type[BaseModel], description: str) -> Callable[[Route], Route]:
    return router.get(
        path,
        summary=summary,
        response_model=model,
        response_description=description,
        responses={200: {"headers": _TAG}, **problems_of(*_READING)},
        openapi_extra=_ACTS,
    )


def _puts(path: str, summary: str, model: type[BaseModel], description: str) -> Callable[[Route], Route]:
    return router.put(
        path,
        summary=summary,
        response_model=model,
        response_description=description,
        responses={
            200: {"headers": _TAG},
            201: {"description": "The record was created.", "headers": _TAG, "model": model},
            **problems_of(*_CHANGING),
        },
        openapi_extra=_ACTS,
    )


def _deletes(path: str, summary: str, description: str) -> Callable[[Route], Route]:
    return router.delete(
        path,
        status_code=204,
        summary=summary,
        response_description=description,
        responses=problems_of(*_CHANGING),
        openapi_extra=_ACTS,
    )


@_lists("/tenants", "List tenants", Tenants, "The ones that the caller administers.")
async def list_tenants(asked: Listed, records: Records, asker: WhoAsks) -> Reply:
    """A tenant owns devices."""
    return _page("tenants", asked, asker, await records.people.tenants(asker.caller), lambda one: one.id)


@_reads("/tenants/{tenant_id}", "Read a tenant", TenantInFile, "The tenant.")
async def read_tenant(tenant_id: TenantId, records: Records, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    return _put(await records.people.tenant(asker.caller, tenant_id))


@_puts("/tenants/{tenant_id}", "Create or replace a tenant", TenantInFile, "The new record.")
async def put_tenant(
    tenant_id: TenantId, body: TenantBody, condition: Conditional, records: Records, asker: WhoAsks
) -> Reply:
    """Needs the global `access` right: it changes which tenant owns a device. Patterns of tenants must not overlap."""
    return _put(*await records.people.put_tenant(asker.caller, tenant_id, body, condition))


@_deletes("/tenants/{tenant_id}", "Delete a tenant", "The record was deleted.")
async def remove_tenant(tenant_id: TenantId, condition: Conditional, records: Records, asker: WhoAsks) -> Reply:
    """Fails with `409` while anything still belongs to the tenant."""
    await records.people.remove_tenant(asker.caller, tenant_id, condition)
    return Reply(status_code=204)


@_lists("/principals", "List people and services", Principals, "The ones that the caller administers.")
async def list_principals(asked: Listed, records: Records, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    return _page("principals", asked, asker, await records.people.principals(asker.caller), lambda one: one.id)


@_reads(
    "/principals/{subject:path}/bindings",
    "List the bindings of a principal or group",
    Bindings,
    "The bindings in tenants that the caller administers.",
)
async def list_bindings(subject: Subject, records: Records, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    return _list("bindings", await records.people.bindings(asker.caller, subject))


@router.put(
    "/principals/{subject:path}/bindings",
    summary="Replace the bindings of a principal or group",
    response_model=Bindings,
    response_description="The new bindings.",
    responses={200: {"headers": _TAG}, **problems_of(*_CHANGING)},
    openapi_extra=_ACTS,
)
async def put_bindings(
    subject: Subject, body: BindingsBody, condition: Conditional, records: Records, asker: WhoAsks
) -> Reply:
    """Replaces all bindings of the subject that the caller can see. Callers can give only rights that they have."""
    return _list("bindings", await records.people.put_bindings(asker.caller, subject, body.bindings, condition))


@_reads("/principals/{principal_id:principal}", "Read a person or service", PrincipalInFile, "The person or service.")
async def read_principal(principal_id: PrincipalId, records: Records, asker: WhoAsks) -> Reply:
    """Returns the record without password and keys."""
    return _put(await records.people.principal(asker.caller, principal_id))


@_puts(
    "/principals/{principal_id:principal}", "Create or replace a person or service", PrincipalInFile, "The new record."
)
async def put_principal(
    principal_id: PrincipalId, body: PrincipalBody, condition: Conditional, records: Records, asker: WhoAsks
) -> Reply:
    """A disabled principal is refused with any credential. For a new one, `tenant` defaults to the caller's."""
    return _put(*await records.people.put_principal(asker.caller, principal_id, body, condition))


@_deletes("/principals/{principal_id:principal}", "Delete a person or service", "The person or service was deleted.")
async def remove_principal(
    principal_id: PrincipalId, condition: Conditional, records: Records, asker: WhoAsks
) -> Reply:
    """Deletes their keys and bindings, too."""
    await records.people.remove_principal(asker.caller, principal_id, condition)
    return Reply(status_code=204)


@_lists("/roles", "List roles", Roles, "The roles that the caller may bind.")
async def list_roles(asked: Listed, records: Records, asker: WhoAsks) -> Reply:
    """Lists built-in roles first."""
    return _page("roles", asked, asker, await records.people.roles(asker.caller), _place_of_role)


def _place_of_role(one: RoleInFile) -> str:
    if one.tenant is None and one.name in _BUILT_IN:
        return f"0{_BUILT_IN.index(one.name):02}"
    return f"1{one.tenant or ''}\n{one.name}"


@_reads("/roles/{name}", "Read a role", RoleInFile, "The role and its rules.")
async def read_role(name: RoleName, records: Records, asker: WhoAsks, tenant: OfTenant = None) -> Reply:
    """Returns the rules of the role, one line each."""
    return _put(await records.people.role(asker.caller, name, tenant))


@_puts("/roles/{name}", "Create or replace a role", RoleInFile, "The new record.")
async def put_role(
    name: RoleName,
    body: RoleBody,
    condition: Conditional,
    records: Records,
    asker: WhoAsks,
    tenant: OfTenant = None,
) -> Reply:
    """The new rules apply at once to everyone who has the role, so callers can write only rights that they have.

    The tenant may be given in the query, as for reading and deleting, or in the body.
    """
    if tenant is not None:
        if "tenant" in body.model_fields_set and body.tenant != tenant:
            raise InvalidInputError("tenant", f"is {tenant[:64]!a} in the query and another one in the body")
        body = RoleBody(rules=body.rules, tenant=tenant)
    return _put(*await records.people.put_role(asker.caller, name, body, condition))


@_deletes("/roles/{name}", "Delete a role", "The record was deleted.")
async def remove_role(
    name: RoleName, condition: Conditional, records: Records, asker: WhoAsks, tenant: OfTenant = None
) -> Reply:
    """Fails with `409` while the role is still bound."""
    await records.people.remove_role(asker.caller, name, tenant, condition)
    return Reply(status_code=204)


def _page(
    name: str, asked: tuple[int, str | None], asker: Asker, parts: Sequence[T], place: Callable[[T], str]
) -> BytesResponse:
    found, cursor = Listing(name, *asked).part(asker.cursors, parts, place)
    shown = [one.model_dump(mode="json") for one in found]
    return BytesResponse(orjson.dumps({name: shown, "cursor": cursor}), headers=[etag(tag_of(shown))])


def _list(name: str, parts: Sequence[BaseModel]) -> BytesResponse:
    shown = [one.model_dump(mode="json") for one in parts]
    return BytesResponse(orjson.dumps({name: shown}), headers=[etag(tag_of(shown))])


def _put(part: BaseModel, made: bool = False) -> BytesResponse:  # noqa: FBT001, FBT002 - what `put_…` gave
    shown = part.model_dump(mode="json")
    return BytesResponse(orjson.dumps(shown), status=201 if made else 200, headers=[etag(tag_of(shown))])
