"""URLs that are told of outcomes. What they get is verified by `homing_client.webhooks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homing_client._async.session import AsyncSession
from homing_client._operations import JsonObject, body_of, listed, nothing_of
from homing_client._wire import Request

_ONE = "/v1/webhooks/{webhook_id}"


class AsyncWebhooks:
    """The webhooks of a cluster, as far as the caller may see and change them. `AsyncHoming.webhooks`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def all(self) -> list[JsonObject]:
        """All of them, without their secrets."""
        return listed(await self._session.exchange(Request("GET", "/v1/webhooks")), "webhooks")

    async def make(self, url: str, **more: Any) -> JsonObject:
        """Have a URL told. `more`: `events`, `devices`, `methods`, `tenant`, as /docs says. `secret` is shown once."""
        asked = Request("POST", "/v1/webhooks", body={"url": url, **more}, repeatable=False)
        return body_of(await self._session.exchange(asked))

    async def get(self, webhook_id: str) -> JsonObject:
        """One of them."""
        return await self._object(Request("GET", _ONE, path={"webhook_id": webhook_id}))

    async def change(self, webhook_id: str, changes: Mapping[str, Any]) -> JsonObject:
        """Change what is named: `url`, `events`, `devices`, `methods`, `enabled`."""
        return await self._object(Request("PATCH", _ONE, path={"webhook_id": webhook_id}, body=dict(changes)))

    async def remove(self, webhook_id: str) -> None:
        """Tell it nothing more."""
        nothing_of(
            await self._session.exchange(Request("DELETE", _ONE, path={"webhook_id": webhook_id}, repeatable=False))
        )

    async def rotate(self, webhook_id: str) -> JsonObject:
        """Give it a new secret; for a while it is told with signatures of both."""
        path = {"webhook_id": webhook_id}
        return await self._object(Request("POST", _ONE + "/rotate", path=path, repeatable=False))

    async def test(self, webhook_id: str) -> JsonObject:
        """Tell it something now, and say what it answered."""
        path = {"webhook_id": webhook_id}
        return await self._object(Request("POST", _ONE + "/test", path=path, repeatable=False))

    async def deliveries(self, webhook_id: str, *, limit: int | None = None) -> list[JsonObject]:
        """What it was told lately, and what it answered."""
        query = {"limit": None if limit is None else str(limit)}
        asked = Request("GET", _ONE + "/deliveries", path={"webhook_id": webhook_id}, query=query)
        return listed(await self._session.exchange(asked), "deliveries")

    async def retry(self, webhook_id: str, event_id: str) -> None:
        """Tell it once more."""
        path = {"webhook_id": webhook_id, "event_id": event_id}
        asked = Request("POST", _ONE + "/deliveries/{event_id}/retry", path=path, repeatable=False)
        nothing_of(await self._session.exchange(asked))

    async def _object(self, request: Request) -> JsonObject:
        return body_of(await self._session.exchange(request))
