# Made by scripts/unasync.py from _async/webhooks.py. Do not edit.
"""URLs that are told of outcomes. What they get is verified by `homing_client.webhooks`."""

from __future__ import annotations

from collections.abc import Sequence

from homing_client._models import Tagged
from homing_client._operations import JsonObject, body_of, changed, given, nothing_of, tagged_of
from homing_client._sync.session import Session
from homing_client._wire import Request

_ONE = "/v1/webhooks/{webhook_id}"
_MOST_OF_PAGE = 200


class Webhooks:
    """The webhooks of a cluster, as far as the caller may see and change them. `Homing.webhooks`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[JsonObject]:
        """All of them, without their secrets."""
        return self._session.every("/v1/webhooks", "webhooks")

    def make(
        self,
        url: str,
        *,
        events: Sequence[str],
        devices: str | None = None,
        methods: str | None = None,
        tenant: str | None = None,
    ) -> JsonObject:
        """Have a URL told of these `events`: `command.failed` … `secret` is in the answer, this once.

        `devices`: only of ids that fit, such as `dock-*`; `methods`: only of `PROFILE:METHOD` that fit, such as
        `dji:*`; `tenant`: whose it is, where the caller operates Homing itself.
        """
        body = given(url=url, events=list(events), devices=devices, methods=methods, tenant=tenant)
        return self._object(Request("POST", "/v1/webhooks", body=body, repeatable=False))

    def get(self, webhook_id: str) -> Tagged:
        """One of them."""
        return tagged_of(self._session.exchange(Request("GET", _ONE, path={"webhook_id": webhook_id})))

    def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        devices: str | None = None,
        methods: str | None = None,
        enabled: bool | None = None,
        if_match: str | None = None,
    ) -> Tagged:
        """Change what is given; what waits for one that is not `enabled` is kept for a day. Raises ConflictError.

        Nodes of 0.2 take no notice of `if_match`.
        """
        told = None if events is None else list(events)
        body = given(url=url, events=told, devices=devices, methods=methods, enabled=enabled)
        return tagged_of(self._session.exchange(changed("PATCH", _ONE, {"webhook_id": webhook_id}, body, if_match)))

    def remove(self, webhook_id: str) -> None:
        """Tell it nothing more."""
        nothing_of(self._session.exchange(Request("DELETE", _ONE, path={"webhook_id": webhook_id}, repeatable=False)))

    def rotate(self, webhook_id: str) -> JsonObject:
        """Give it a new secret; for a while it is told with signatures of both."""
        path = {"webhook_id": webhook_id}
        return self._object(Request("POST", _ONE + "/rotate", path=path, repeatable=False))

    def test(self, webhook_id: str) -> JsonObject:
        """Tell it something now, and say what it answered."""
        path = {"webhook_id": webhook_id}
        return self._object(Request("POST", _ONE + "/test", path=path, repeatable=False))

    def deliveries(self, webhook_id: str, *, limit: int | None = None) -> list[JsonObject]:
        """What it was told lately, and what it answered.

        Those that wait come first. `limit`: how many at most, in so many pages as it takes; nodes of 0.2 give one, of
        200 at most. Without it, one page.
        """
        found: list[JsonObject] = []
        cursor: str | None = None
        while True:
            size = None if limit is None else str(min(limit - len(found), _MOST_OF_PAGE))
            query = {"limit": size, "cursor": cursor}
            asked = Request("GET", _ONE + "/deliveries", path={"webhook_id": webhook_id}, query=query)
            page = body_of(self._session.exchange(asked))
            found += page.get("deliveries") or ()
            cursor = page.get("cursor")
            if cursor is None or limit is None or len(found) >= limit:
                return found

    def retry(self, webhook_id: str, event_id: str) -> None:
        """Tell it once more."""
        path = {"webhook_id": webhook_id, "event_id": event_id}
        asked = Request("POST", _ONE + "/deliveries/{event_id}/retry", path=path, repeatable=False)
        nothing_of(self._session.exchange(asked))

    def _object(self, request: Request) -> JsonObject:
        return body_of(self._session.exchange(request))
