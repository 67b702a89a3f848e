"""Webhooks, as those see them who make, change and try them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from app.core.access.rules import QUEUE_PLACE
from app.core.clock import IdFactory
from app.core.errors import CapacityError, InvalidInputError, WebhookChangedError, WebhookNotFoundError
from app.core.webhooks.deliveries import Delivery, Progress
from app.core.webhooks.destinations import Network, refusal_of_host
from app.core.webhooks.endpoints import (
    USUAL_BATCH,
    Endpoint,
    new_id,
    validate_batch,
    validate_events,
    validate_filter,
    validate_id,
    validate_url,
)
from app.core.webhooks.places import FIRST, FIRST_ENDED, DeliveryPage, DeliveryPosition
from app.core.webhooks.schedule import KEPT, Reply
from app.core.webhooks.signatures import Signer
from app.outbound.ports import Sender
from app.store.webhooks import WebhookStore
from app.webhooks import events
from app.webhooks.book import MOST_ENDPOINTS, MOST_OF_TENANT, EndpointBook

LOOKED_AT: Final = 200
"""The deliveries that are read at once where only some are wanted."""


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """The wishes of a caller for an endpoint; None leaves it as it is."""

    url: str | None = None
    events: Sequence[str] | None = None
    devices: str | None = None
    methods: str | None = None
    enabled: bool | None = None
    queue: str | None = None
    """A queue of the endpoint's tenant; only a new endpoint takes one."""
    batch: int | None = None


class WebhookAdministrator:
    """`tenant` is in every call: None for who operates Homing, "" where nobody is asked for a key; both know of all."""

    def __init__(
        self,
        *,
        store: WebhookStore,
        book: EndpointBook,
        sender: Sender,
        signer: Signer,
        new_ulid: IdFactory,
        now: Callable[[], int],
        plain_http: bool,
        allowed: Sequence[Network] = (),
    ) -> None:
        """`now` in µs. With `plain_http`, http:// is allowed, too; `allowed` networks are besides public addresses."""
        self.most_of_tenant = MOST_OF_TENANT
        self._store = store
        self._book = book
        self._sender = sender
        self._signer = signer
        self._new_ulid = new_ulid
        self._now = now
        self._plain_http = plain_http
        self._allowed = allowed
        self._tested: set[str] = set()
        """The endpoints that are tested at this moment."""

    async def create(self, tenant: str, wanted: EndpointChange) -> tuple[Endpoint, str]:
        """A new endpoint and its secret, which is shown this once; InvalidInputError, CapacityError."""
        if wanted.url is None:
            raise InvalidInputError("url", "is missing; allowed: https://host[:port]/path")
        if wanted.events is None and wanted.queue is None:
            raise InvalidInputError("events", "is missing; a list is needed")
        blank = Endpoint(
            id=new_id(self._new_ulid()),
            tenant=tenant,
            url="",
            events=frozenset(),
            devices="*" if wanted.queue is None else f"{QUEUE_PLACE}{wanted.queue}",
            methods="*:*",
            created_at=self._now(),
            root=self._signer.fingerprint,
            queue=wanted.queue or "",
            batch=0 if wanted.queue is None else USUAL_BATCH,
        )
        endpoint = self._changed(blank, wanted)
        there = await self._store.endpoints()
        if len(there) >= MOST_ENDPOINTS:
            raise CapacityError(f"there are {MOST_ENDPOINTS} webhooks, which is all that a cluster can have")
        if tenant and sum(one.tenant == tenant for one in there) >= self.most_of_tenant:
            raise CapacityError(
                f"tenant {tenant[:64]!a} has {self.most_of_tenant} webhooks, which is all that it can have"
            )
        await self._put(endpoint, None)
        return endpoint, self._signer.secret(endpoint)

    async def all(self, tenant: str | None) -> Sequence[Endpoint]:
        """Return those of a tenant, the oldest first."""
        return [one for one in await self._store.endpoints() if not tenant or tenant == one.tenant]

    async def get(self, tenant: str | None, endpoint_id: str) -> Endpoint:
        """WebhookNotFoundError."""
        validate_id(endpoint_id)
        for one in await self.all(tenant):
            if one.id == endpoint_id:
                return one
        raise WebhookNotFoundError(f"there is no webhook {endpoint_id}")

    async def change(
        self,
        tenant: str | None,
        endpoint_id: str,
        wanted: EndpointChange,
        check: Callable[[Endpoint], None] = lambda _: None,
    ) -> Endpoint:
        """The endpoint as it stands then. What waits for a disabled one is kept for a day.

        `check` raises when the endpoint that is changed is not what the caller takes it for.
        """
        before = await self.get(tenant, endpoint_id)
        check(before)
        endpoint = self._changed(before, wanted)
        await self._put(endpoint, before)
        if endpoint.enabled != before.enabled:
            await self._store.keep(endpoint_id, None if endpoint.enabled else timedelta(microseconds=KEPT))
        return endpoint

    async def rotate(self, tenant: str | None, endpoint_id: str) -> tuple[Endpoint, str]:
        """The next secret, which is shown this once; the one before signs as well for a day."""
        before = await self.get(tenant, endpoint_id)
        endpoint = before.rotated(self._now())
        await self._put(endpoint, before)
        return endpoint, self._signer.secret(endpoint)

    async def remove(self, tenant: str | None, endpoint_id: str) -> None:
        """Forget it and all that waits for it."""
        await self.get(tenant, endpoint_id)
        await self._store.remove_endpoint(endpoint_id)
        await self._book.refresh()

    async def deliveries(
        self,
        tenant: str | None,
        endpoint_id: str,
        limit: int,
        behind: DeliveryPosition = FIRST,
        outcome: Progress | None = None,
    ) -> tuple[int, DeliveryPage]:
        """Count those that wait; list them, the next one first, and those that ended, the last first, up to `limit`.

        With `outcome` only those that stand so.
        """
        await self.get(tenant, endpoint_id)
        (waiting,) = await self._store.waiting([endpoint_id])
        if outcome is None:
            return waiting, await self._store.deliveries(endpoint_id, limit, behind)
        return waiting, await self._standing(outcome, endpoint_id, limit, behind)

    async def _standing(
        self, outcome: Progress, endpoint_id: str, limit: int, behind: DeliveryPosition
    ) -> DeliveryPage:
        """Look through the list, of which MOST_KEPT deliveries have ended at most."""
        at: DeliveryPosition | None = behind if behind.ended or outcome is Progress.WAITING else FIRST_ENDED
        found: list[Delivery] = []
        while at is not None:
            page = await self._store.deliveries(endpoint_id, LOOKED_AT, at)
            fitting = [number for number, one in enumerate(page.deliveries) if one.progress is outcome]
            shown = fitting[: limit - len(found)]
            found += [page.deliveries[number] for number in shown]
            if len(found) == limit:
                upto = await self._store.deliveries(endpoint_id, shown[-1] + 1, at)
                return DeliveryPage(found, upto.behind)
            is_over = outcome is Progress.WAITING and len(fitting) < len(page.deliveries)
            at = None if is_over else page.behind
        return DeliveryPage(found, None)

    async def again(self, tenant: str | None, endpoint_id: str, event_id: str) -> None:
        """Try an ended delivery once more, now; WebhookNotFoundError."""
        await self.get(tenant, endpoint_id)
        if not await self._store.again(endpoint_id, event_id):
            raise WebhookNotFoundError(f"webhook {endpoint_id} has no delivery {event_id[:100]} that has ended")

    async def test(self, tenant: str | None, endpoint_id: str) -> Reply:
        """Send it an event now, once, from this node. It counts for nothing but its answer. CapacityError."""
        endpoint = await self.get(tenant, endpoint_id)
        if endpoint.id in self._tested:
            raise CapacityError(f"webhook {endpoint.id} is being tested; this node tests it once at a time")
        now = self._now()
        event = events.of_test(endpoint, now)
        headers = self._signer.headers(endpoint, event.event_id, event.body, now)
        self._tested.add(endpoint.id)
        try:
            return await self._sender.post(endpoint.url, headers, event.body)
        finally:
            self._tested.remove(endpoint.id)

    def _changed(self, endpoint: Endpoint, wanted: EndpointChange) -> Endpoint:
        changed = self._narrowed_by_queue(endpoint, wanted) if endpoint.queue else self._narrowed(endpoint, wanted)
        if wanted.url is not None:
            changed = replace(changed, url=self._url(wanted.url))
        if wanted.enabled is True:
            changed = replace(changed, disabled_at=None, disabled_reason=None)
        if wanted.enabled is False and changed.enabled:
            changed = changed.disabled(self._now(), "somebody has disabled it")
        return changed

    @staticmethod
    def _narrowed(endpoint: Endpoint, wanted: EndpointChange) -> Endpoint:
        if wanted.batch is not None:
            raise InvalidInputError("batch", "is of webhooks with a queue; this one is told of commands")
        devices, methods = validate_filter(
            endpoint.devices if wanted.devices is None else wanted.devices,
            endpoint.methods if wanted.methods is None else wanted.methods,
        )
        events = endpoint.events if wanted.events is None else validate_events(wanted.events)
        return replace(endpoint, devices=devices, methods=methods, events=events)

    @staticmethod
    def _narrowed_by_queue(endpoint: Endpoint, wanted: EndpointChange) -> Endpoint:
        for field in ("events", "devices", "methods"):
            if getattr(wanted, field) is not None:
                raise InvalidInputError(field, "is of webhooks that are told of commands; this one has a queue")
        return endpoint if wanted.batch is None else replace(endpoint, batch=validate_batch(wanted.batch))

    def _url(self, text: str) -> str:
        """The URL itself; InvalidInputError also where it names an address that nobody ever connects to."""
        url = validate_url(text, plain_http=self._plain_http)
        reason = refusal_of_host(urlsplit(url).hostname or "", self._allowed)
        if reason is not None:
            raise InvalidInputError("url", f"{reason}; allowed: public addresses, and HOMING_WEBHOOKS_NETWORKS")
        return url

    async def _put(self, endpoint: Endpoint, before: Endpoint | None) -> None:
        if not await self._store.put_endpoint(endpoint, before):
            raise WebhookChangedError(f"webhook {endpoint.id} was changed meanwhile: read it, and try again")
        await self._book.refresh()
