# Made by scripts/unasync.py from _async/webhooks.py. Do not edit.
"""URLs that are told of outcomes. What they get is verified by `homing_client.webhooks`."""

from __future__ import annotations

from collections.abc import Sequence

from homing_client._answers import body_of, nothing_of, tagged_of
from homing_client._node_models import Tagged
from homing_client._operations import JsonObject, changed, given
from homing_client._sync.session import Session
from homing_client._wire import Request

_ONE = "/v1/webhooks/{webhook_id}"
_MOST_OF_PAGE = 200


class Webhooks:
    """The webhooks of a cluster, as far as the caller may see and change them. `Homing.webhooks`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[JsonObject]:
        """List all webhooks, without their secrets."""
        return self._session.every("/v1/webhooks", "webhooks")

    def make(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        devices: str | None = None,
        methods: str | None = None,
        queue: str | None = None,
        batch: int | None = None,
        tenant: str | None = None,
    ) -> JsonObject:
        """Create a webhook that receives these `events`, such as `command.failed`. `secret` is shown only this once.

        `devices` and `methods` are patterns that narrow it, such as `dock-*`, and `dji:*` for `PROFILE:METHOD`.
        With a `queue` it receives the events of that queue instead, up to `batch` at once, as CloudEvents. `tenant`
        owns it; only operators of Homing itself may set it.
        """
        if events is None and queue is None:
            raise ValueError("events are missing; allowed: events of commands, or a queue")
        told = None if events is None else list(events)
        body = given(url=url, events=told, devices=devices, methods=methods, queue=queue, batch=batch, tenant=tenant)
        return self._object(Request("POST", "/v1/webhooks", body=body, repeatable=False))

    def get(self, webhook_id: str) -> Tagged:
        """Show a webhook."""
        return tagged_of(self._session.exchange(Request("GET", _ONE, path={"webhook_id": webhook_id})))

    def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        devices: str | None = None,
        methods: str | None = None,
        batch: int | None = None,
        enabled: bool | None = None,
        if_match: str | None = None,
    ) -> Tagged:
        """Change the given fields. Deliveries to a disabled webhook are kept for a day. Raises ConflictError.

        Nodes of version 0.2 ignore `if_match`.
        """
        told = None if events is None else list(events)
        body = given(url=url, events=told, devices=devices, methods=methods, batch=batch, enabled=enabled)
        return tagged_of(self._session.exchange(changed("PATCH", _ONE, {"webhook_id": webhook_id}, body, if_match)))

    def remove(self, webhook_id: str) -> None:
        """Delete a webhook."""
        nothing_of(self._session.exchange(Request("DELETE", _ONE, path={"webhook_id": webhook_id}, repeatable=False)))

    def rotate(self, webhook_id: str) -> JsonObject:
        """Replace the secret of a webhook. For a while, deliveries are signed with both secrets."""
        path = {"webhook_id": webhook_id}
        return self._object(Request("POST", _ONE + "/rotate", path=path, repeatable=False))

    def test(self, webhook_id: str) -> JsonObject:
        """Send a test event to a webhook now, and return the receiver's answer."""
        path = {"webhook_id": webhook_id}
        return self._object(Request("POST", _ONE + "/test", path=path, repeatable=False))

    def deliveries(self, webhook_id: str, *, outcome: str | None = None, limit: int | None = None) -> list[JsonObject]:
        """List the latest deliveries of a webhook and the receiver's answers.

        Waiting deliveries come first; with `outcome`, only those are listed that are `waiting`, `delivered` or
        `given_up`. `limit` is the maximum number, read in as many pages as it takes; nodes of version 0.2 give one
        page of at most 200. Without `limit`, one page is read.
        """
        found: list[JsonObject] = []
        cursor: str | None = None
        while True:
            size = None if limit is None else str(min(limit - len(found), _MOST_OF_PAGE))
            query = {"outcome": outcome, "limit": size, "cursor": cursor}
            asked = Request("GET", _ONE + "/deliveries", path={"webhook_id": webhook_id}, query=query)
            page = body_of(self._session.exchange(asked))
            found += page.get("deliveries") or ()
            cursor = page.get("cursor")
            if cursor is None or limit is None or len(found) >= limit:
                return found

    def retry(self, webhook_id: str, event_id: str) -> None:
        """Retry a finished delivery."""
        path = {"webhook_id": webhook_id, "event_id": event_id}
        asked = Request("POST", _ONE + "/deliveries/{event_id}/retry", path=path, repeatable=False)
        nothing_of(self._session.exchange(asked))

    def _object(self, request: Request) -> JsonObject:
        return body_of(self._session.exchange(request))
