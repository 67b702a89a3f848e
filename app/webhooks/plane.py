"""Webhooks of one node as one life: put together from the settings, or absent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app import __version__
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.signatures import LEAST_ROOT_BYTES, Signer
from app.kernel import Kernel
from app.outbound.ports import DeferredSender, Sender
from app.plane import Plane
from app.runtime.services import Service
from app.settings import WebhooksSettings
from app.webhooks.administration import WebhookAdministrator
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook, TenantOf
from app.webhooks.collector import Collector
from app.webhooks.deliverer import Deliverer
from app.webhooks.events import Render
from app.webhooks.lane import DeliveryLane
from app.webhooks.parcels import ParcelSources, StoredDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPlane:
    """The parts that serve webhooks, on a node that has the root secret."""

    book: EndpointBook
    administration: WebhookAdministrator
    plane: Plane
    sources: ParcelSources


def nobody(device_id: str, profile: str, method: str, named: Sequence[str]) -> tuple[str, ...]:
    """Tell nobody, on a node that serves no webhooks; InvalidInputError when the caller of a command names some."""
    del device_id, profile, method
    if named:
        raise InvalidInputError("notify", "names webhooks, and this node has no HOMING_WEBHOOKS_SECRET_KEY")
    return ()


def open_webhooks(
    kernel: Kernel, *, tenant_of: TenantOf, render: Render, sender: Sender | None = None
) -> WebhookPlane | None:
    """None where the settings have no root secret; ConfigurationError.

    `tenant_of` tells to whom a device belongs, `render` shows a command as the API does. Without a `sender` deliveries
    go out by HTTP.
    """
    settings, hooks = kernel.settings.webhooks, kernel.store.webhooks
    root = _root_secret(settings)
    if not root:
        return None
    signer = Signer(root)
    book = EndpointBook(hooks, tenant_of)
    kernel.access_changed.add(book.forget)
    sender = sender or DeferredSender(lambda: _http_sender(settings))
    chance = Random(kernel.adapters.random_bytes(16))
    told = StoredDeliveries(store=hooks, now=kernel.now_us, random=chance, counters=kernel.counters)
    sources = ParcelSources(told)
    deliverer = _deliverer(kernel, book, render, sender, signer, sources)
    administration = WebhookAdministrator(
        store=hooks,
        book=book,
        sender=sender,
        signer=signer,
        new_ulid=kernel.adapters.new_ulid,
        now=kernel.now_us,
        plain_http=settings.plain_http,
        allowed=settings.allowed_networks,
    )
    service = Service("webhooks", deliverer.run, close=sender.close, fills=deliverer.fills)
    plane = Plane(name="webhooks", services=[service])
    return WebhookPlane(book=book, administration=administration, plane=plane, sources=sources)


def _deliverer(
    kernel: Kernel,
    book: EndpointBook,
    render: Render,
    sender: Sender,
    signer: Signer,
    sources: ParcelSources,
) -> Deliverer:
    hooks, counters = kernel.store.webhooks, kernel.counters
    waiting = DeliveryBacklog(hooks, book)
    collector = Collector(
        store=hooks,
        commands=kernel.store,
        book=book,
        render=render,
        now=kernel.now_us,
        counters=counters,
        waiting=waiting,
    )

    def open_lane(endpoint: Endpoint) -> DeliveryLane:
        return DeliveryLane(
            endpoint.id,
            endpoint=book.get,
            source=sources.of(endpoint),
            sender=sender,
            signer=signer,
            disable=collector.disable,
            now=kernel.now_us,
            counters=counters,
        )

    return Deliverer(
        collector=collector,
        book=book,
        waiting=waiting,
        live=kernel.live,
        node_id=kernel.info.node_id,
        open_lane=open_lane,
        pushes=lambda: sources.queues is not None,
        root=signer.fingerprint,
        counters=counters,
    )


def _http_sender(settings: WebhooksSettings) -> Sender:
    from app.outbound.sender import HttpSender  # noqa: PLC0415 - its library takes 8 MB, which idle nodes save

    return HttpSender(allowed=settings.allowed_networks, user_agent=f"homing/{__version__}")


def _root_secret(webhooks: WebhooksSettings) -> bytes:
    """Return what all secrets are derived from; none when no webhooks are wanted."""
    if webhooks.secret_key_file is None:
        return webhooks.secret_key.get_secret_value().encode()
    try:
        root = webhooks.secret_key_file.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"HOMING_WEBHOOKS_SECRET_KEY_FILE: {error}") from None
    if len(root) < LEAST_ROOT_BYTES:
        raise ConfigurationError(
            f"HOMING_WEBHOOKS_SECRET_KEY_FILE: {LEAST_ROOT_BYTES} bytes are needed; openssl rand -base64 32 makes them"
        )
    return root
