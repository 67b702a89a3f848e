"""The endpoints as this node knows them: which of them want to be told of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.core.errors import InvalidInputError, UnavailableError
from app.core.webhooks.endpoints import Endpoint
from app.store.webhooks import WebhookStore

MOST_ENDPOINTS: Final = 200
"""The number that a cluster can have."""
MOST_OF_TENANT: Final = 50
"""The number of them that one tenant can have."""
MOST_NAMED: Final = 16
"""The number of them that a caller can name to be told of one command."""
_MOST_REMEMBERED: Final = 8_192

TenantOf = Callable[[str], str]
"""Returns the tenant of a device; "" where nobody is asked for a key."""


class EndpointBook:
    """Follows the store: an endpoint is known on all nodes after one interval."""

    def __init__(self, store: WebhookStore, tenant_of: TenantOf) -> None:
        self._store = store
        self._tenant_of = tenant_of
        self._endpoints: Mapping[str, Endpoint] = {}
        self.is_read = False
        """True once the endpoints are known; later they may be those of a while ago."""
        self._wanting: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def get(self, endpoint_id: str) -> Endpoint | None:
        """The endpoint, where there is one."""
        return self._endpoints.get(endpoint_id)

    @property
    def all(self) -> Sequence[Endpoint]:
        """All of them."""
        return tuple(self._endpoints.values())

    async def refresh(self) -> None:
        """Read them; StoreUnavailableError."""
        found = {one.id: one for one in await self._store.endpoints()}
        self.is_read = True
        if found != self._endpoints:
            self._endpoints = found
            self._wanting.clear()

    def forget(self) -> None:
        """Devices may have other owners now."""
        self._wanting.clear()

    def told_of(self, device_id: str, profile: str, method: str, named: Sequence[str] = ()) -> tuple[str, ...]:
        """Return who is told of a command: those whose filter fits, and those that its caller names.

        One that was made where nobody is asked for a key is of no tenant, and hears of the devices of all, also after
        that. InvalidInputError for a name that is no endpoint of the device's tenant, nor of none. UnavailableError
        before they were read for the first time: a command that is sent then would never be told of.
        """
        if not self.is_read:
            raise UnavailableError("this node has not read yet which webhooks there are")
        for one in named:
            endpoint = self._endpoints.get(one)
            if endpoint is None or not self.hears_of(endpoint, device_id):
                raise InvalidInputError(
                    "notify", f"{one[:64]!a} is no webhook; allowed: ids that GET /v1/webhooks lists"
                )
        if not self._endpoints:
            return ()
        key = (device_id, profile, method)
        found = self._wanting.get(key)
        if found is None:
            found = self._remember(key)
        return tuple(dict.fromkeys((*named, *found))) if named else found

    def hears_of(self, endpoint: Endpoint, device_id: str) -> bool:
        """True if it may be told of the device, which may have become another tenant's; UnavailableError."""
        return endpoint.tenant in self._tenants(device_id)

    def _tenants(self, device_id: str) -> tuple[str, str]:
        return "", self._tenant_of(device_id)

    def _remember(self, key: tuple[str, str, str]) -> tuple[str, ...]:
        if len(self._wanting) >= _MOST_REMEMBERED:
            self._wanting.clear()
        tenants = self._tenants(key[0])
        fits = (one.id for one in self._endpoints.values() if one.tenant in tenants and one.wants(*key))
        found = self._wanting[key] = tuple(fits)
        return found
