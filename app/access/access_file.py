"""The access directory as a file that people keep under version control: JSON, without keys and passwords."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, ValidationError

from app.core.access.callers import OIDC
from app.core.access.model import Binding, Device, Document, Kind, Principal, Role, Tenant
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import validate_device_id

MAX_BYTES: Final = 16 * 2**20


def _with_zone(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("has no time zone: end it with Z")
    return instant


_Id = Annotated[str, Field(min_length=1, max_length=128)]
_Instant = Annotated[datetime, AfterValidator(_with_zone)]


class _FilePart(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TenantBody(_FilePart):
    """A tenant without its id. The name defaults to the id."""

    name: str = ""
    devices: list[str]


class TenantInFile(TenantBody):
    """A tenant."""

    id: _Id


class PrincipalBody(_FilePart):
    """A person or a program, without id, password and keys."""

    name: str = ""
    kind: Kind = Kind.SERVICE
    tenant: _Id | None = None
    email: str | None = None
    disabled: StrictBool = False


class PrincipalInFile(PrincipalBody):
    """A person or a program, without password and keys."""

    id: _Id


class RoleBody(_FilePart):
    """The rules of a role."""

    tenant: _Id | None = None
    rules: list[str]


class RoleInFile(RoleBody):
    """A role with its rules."""

    name: _Id


class BindingBody(_FilePart):
    """A role that is given to a subject. An id is needed only if two bindings have the same role and tenant."""

    id: str = ""
    role: _Id
    tenant: _Id | None = None
    devices: list[str] = ["*"]
    expires: _Instant | None = None


class BindingInFile(BindingBody):
    """A binding of a role to a subject."""

    subject: _Id


class DeviceInFile(_FilePart):
    """The record of a device."""

    id: _Id
    tenant: _Id
    profile: str | None = None
    labels: dict[str, str] = {}
    note: str = ""


class AccessFile(_FilePart):
    """The whole access directory. Entries that a section omits are removed; a missing section stays as it is."""

    tenants: list[TenantInFile] | None = None
    principals: list[PrincipalInFile] | None = None
    roles: list[RoleInFile] | None = None
    bindings: list[BindingInFile] | None = None
    devices: list[DeviceInFile] | None = None


def read_file(text: str, name: str) -> AccessFile:
    """The file's content; ConfigurationError says where it is wrong and what is allowed."""
    try:
        return AccessFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        where = f"{name}: {place}: " if place else f"{name}: "
        raise ConfigurationError(f"{where}{first['msg'].removeprefix('Value error, ')}") from None


def wanted(file: AccessFile, current: Document, now_us: int) -> Document:
    """Return the document that the file asks for; InvalidInputError.

    Parts of an entry that it leaves out, such as a password, stay as they are.

    The credentials of principals that go, go with them.
    """
    sections: dict[str, object] = {}
    if file.tenants is not None:
        sections["tenants"] = tuple(tenant_of(one, current, now_us) for one in _distinct("tenants", file.tenants))
    if file.principals is not None:
        found = _distinct("principals", file.principals)
        sections["principals"] = tuple(principal_of(one, current, now_us) for one in found)
        stay = {one.id for one in found}
        sections["credentials"] = tuple(one for one in current.credentials if one.principal_id in stay)
    if file.roles is not None:
        sections["roles"] = tuple(
            Role(name=one.name, tenant_id=one.tenant, rules=tuple(one.rules)) for one in _distinct("roles", file.roles)
        )
    if file.bindings is not None:
        sections["bindings"] = tuple(map(binding_of, _distinct("bindings", file.bindings)))
    if file.devices is not None:
        sections["devices"] = tuple(
            Device(id=_device_id(one.id), tenant_id=one.tenant, profile=one.profile, labels=one.labels, note=one.note)
            for one in _distinct("devices", file.devices)
        )
    return replace(current, **sections)  # type: ignore[arg-type] # each has the type of its section


def _device_id(text: str) -> str:
    try:
        return validate_device_id(text)
    except InvalidInputError as error:
        raise InvalidInputError("devices", f"{text[:128]!a} {error.reason}") from None


def written(document: Document) -> str:
    """The document as such a file."""
    return json.dumps(file_of(document).model_dump(mode="json"), indent=2, ensure_ascii=False)


def file_of(document: Document) -> AccessFile:
    """The part of the document that stands in a file."""
    return AccessFile(
        tenants=[tenant_part(one) for one in document.tenants],
        principals=[principal_part(one) for one in document.principals],
        roles=[role_part(one) for one in document.roles],
        bindings=[binding_part(one) for one in document.bindings],
        devices=[
            DeviceInFile(id=one.id, tenant=one.tenant_id, profile=one.profile, labels=dict(one.labels), note=one.note)
            for one in document.devices
        ],
    )


def tenant_part(one: Tenant) -> TenantInFile:
    """As it stands in a file."""
    return TenantInFile(id=one.id, name=one.name, devices=list(one.devices))


def principal_part(one: Principal) -> PrincipalInFile:
    """As it stands in a file."""
    disabled = one.disabled_us is not None
    return PrincipalInFile(
        id=one.id, name=one.name, kind=one.kind, tenant=one.tenant_id, email=one.email, disabled=disabled
    )


def role_part(one: Role) -> RoleInFile:
    """As it stands in a file."""
    return RoleInFile(name=one.name, tenant=one.tenant_id, rules=list(one.rules))


def binding_part(one: Binding) -> BindingInFile:
    """As it stands in a file."""
    return BindingInFile(
        id=one.id,
        subject=one.subject,
        role=one.role,
        tenant=one.tenant_id,
        devices=list(one.devices),
        expires=None if one.expires_us is None else instant_of(one.expires_us),
    )


def instant_of(microseconds: int) -> datetime:
    """As a time of day, UTC. Far ones are the last that can be written."""
    latest = datetime.max.replace(tzinfo=UTC)
    if microseconds >= microseconds_of(latest):
        return latest
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def microseconds_of(instant: datetime) -> int:
    """Since 1970, exact."""
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def binding_id(subject: str, role: str, tenant: str | None) -> str:
    """The id of a binding that was given none."""
    return f"{subject}:{role}@{tenant or '*'}"


_Named = TypeVar("_Named", TenantInFile, PrincipalInFile, RoleInFile, BindingInFile, DeviceInFile)


def _distinct(section: str, parts: Iterable[_Named]) -> list[_Named]:
    seen, found = set(), []
    for part in parts:
        identity = _identity(part)
        if identity in seen:
            hint = "; give one of them an id" if section == "bindings" else ""
            raise InvalidInputError(section, f"two of them are {identity[0]!a}{hint}")
        seen.add(identity)
        found.append(part)
    return found


def _identity(part: TenantInFile | PrincipalInFile | RoleInFile | BindingInFile | DeviceInFile) -> tuple[str, ...]:
    if isinstance(part, RoleInFile):
        return (part.name, part.tenant or "")
    if isinstance(part, BindingInFile):
        return (part.id or binding_id(part.subject, part.role, part.tenant),)
    return (part.id,)


def tenant_of(part: TenantInFile, current: Document, now_us: int) -> Tenant:
    """The entry; what a file does not say stays as it is on record."""
    known = next((one for one in current.tenants if one.id == part.id), None)
    created = now_us if known is None else known.created_us
    return Tenant(id=part.id, name=part.name or part.id, devices=tuple(part.devices), created_us=created)


def check_new_id(principal_id: str) -> None:
    """InvalidInputError when this is what the subject of a token is called."""
    if principal_id.startswith(OIDC):
        raise InvalidInputError("id", f"{principal_id[:128]!a} begins with {OIDC}, as the subjects of tokens do")


def principal_of(part: PrincipalInFile, current: Document, now_us: int) -> Principal:
    """The entry; what a file does not say stays as it is on record."""
    new = Principal(id=part.id, tenant_id=None, kind=part.kind, name="", created_us=now_us)
    known = next((one for one in current.principals if one.id == part.id), None)
    if known is None:
        check_new_id(part.id)
        known = new
    disabled = (known.disabled_us or now_us) if part.disabled else None
    return replace(
        known, tenant_id=part.tenant, kind=part.kind, name=part.name or part.id, email=part.email, disabled_us=disabled
    )


def binding_of(part: BindingInFile) -> Binding:
    """The entry."""
    return Binding(
        id=_identity(part)[0],
        subject=part.subject,
        role=part.role,
        tenant_id=part.tenant,
        devices=tuple(part.devices),
        expires_us=None if part.expires is None else microseconds_of(part.expires),
    )
