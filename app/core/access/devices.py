"""Devices that have keys of their own: each is a principal, whose id says which device it is."""

from __future__ import annotations

from typing import Final

from app.core.access.model import Document, Kind, Principal
from app.core.access.snapshot import Tenancy
from app.core.errors import EntryConflictError
from app.core.identifiers import validate_device_id

_DEVICE: Final = "device:"
"""The beginning of the id of such a principal. To nodes that know no devices it is a service without rights."""


def is_device_principal(principal_id: str) -> bool:
    """True if the principal is a device."""
    return principal_id.startswith(_DEVICE)


def principal_of_device(device_id: str) -> str:
    """The id of the principal that the device is, whether or not it is on record."""
    return f"{_DEVICE}{device_id}"


def device_of_principal(principal_id: str) -> str | None:
    """The id of the device that the principal is; None if it is none."""
    return principal_id.removeprefix(_DEVICE) if is_device_principal(principal_id) else None


def device_principal(document: Document, tenancy: Tenancy, device: str, now_us: int) -> Principal:
    """The principal of a device, as it is on record or as it is to be; EntryConflictError, InvalidInputError.

    It belongs to the tenant of the device, and counts only for as long as the device does.
    """
    device_id = validate_device_id(device)
    principal_id = principal_of_device(device_id)
    owner = tenancy.owner(device_id)
    if owner is None:
        raise EntryConflictError(f"device {device_id!a} belongs to no tenant: put it on record first")
    tenant_id = owner if document.tenants else None
    known = next((one for one in document.principals if one.id == principal_id), None)
    if known is None:
        return Principal(id=principal_id, tenant_id=tenant_id, kind=Kind.SERVICE, name=device_id, created_us=now_us)
    if known.tenant_id not in (None, tenant_id):
        raise EntryConflictError(f"{principal_id!a} belongs to another tenant than its device: remove it first")
    return known
