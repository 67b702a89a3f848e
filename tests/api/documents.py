"""The OpenAPI document of nodes in this process."""

from __future__ import annotations

from typing import Any, Final

from tests.api.rig import Rig

_MADE: Final[dict[type[object], dict[str, Any]]] = {}
"""The documents, by the kind of access: nothing else of a node is in them."""


async def document_of(rig: Rig) -> dict[str, Any]:
    """Return what a node serves at `/openapi.json`, asked for once in a worker, as it takes seconds to make.

    Nobody may change it.
    """
    kind = type(rig.application.ports.access)
    if kind not in _MADE:
        _MADE[kind] = (await rig.http.get("/openapi.json")).json()
    return _MADE[kind]
