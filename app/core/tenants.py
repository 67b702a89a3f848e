"""The part of names and topics that stands for a tenant, whose id may have any characters."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

_NOBODY: Final = "-"


def tenant_level(tenant: str) -> str:
    """Return what stands for a tenant: `-` for none, and no slash or wildcard whatever its id is."""
    if not tenant:
        return _NOBODY
    return "%2D" if tenant == _NOBODY else quote(tenant, safe="")
