"""Webhooks, as they go in and out."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool

from app.api.representation import instant
from app.api.v1.command_models import Instant
from app.core.webhooks.deliveries import Delivery, Progress
from app.core.webhooks.endpoints import SUBSCRIBABLE, Endpoint

WEBHOOK_ID: Final = "wh_01JC8ZQ5M7W3T9K2V4X6Y8B0D1"
EVENT_ID: Final = "evt_042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1_1"

_EVENTS: Final = ", ".join(f"`{one}`" for one in SUBSCRIBABLE)
_Url = Annotated[
    str,
    Field(
        description="https, to a public address; no user, password or fragment.", examples=["https://a.example/hook"]
    ),
]
_Events = Annotated[list[str], Field(description=f"Of what it is told: {_EVENTS}.", examples=[["command.succeeded"]])]
_Devices = Annotated[str, Field(description="Of which devices: a pattern, `*` is any text.", examples=["dock-*"])]
_Methods = Annotated[str, Field(description="Of which `profile:method`: a pattern.", examples=["dji:*"])]


class _WebhookModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewWebhook(_WebhookModel):
    """A URL, and what it is to be told of."""

    url: _Url
    events: _Events
    devices: _Devices = "*"
    methods: _Methods = "*:*"
    tenant: Annotated[
        str | None,
        Field(description="Whose it is, where the caller operates Homing itself."),
    ] = None


class WebhookChange(_WebhookModel):
    """What is left out stays as it is."""

    url: _Url | None = None
    events: _Events | None = None
    devices: _Devices | None = None
    methods: _Methods | None = None
    enabled: Annotated[StrictBool | None, Field(description="What waits for a disabled one is kept for a day.")] = None


class Webhook(_WebhookModel):
    """Who is told of what."""

    id: Annotated[str, Field(examples=[WEBHOOK_ID])]
    tenant: Annotated[str, Field(description="Whose it is; empty on a node that asks nobody for a key.")]
    url: _Url
    events: _Events
    devices: _Devices
    methods: _Methods
    created_at: Instant
    rotated_at: Annotated[Instant | None, Field(description="When its secret was changed last.")]
    enabled: bool
    disabled_at: Instant | None
    disabled_reason: str | None


class WebhookWithSecret(Webhook):
    """The same with its secret, which is shown once."""

    secret: Annotated[
        str,
        Field(description="Standard Webhooks 1.0, symmetric, for a library that verifies.", examples=["whsec_…"]),
    ]


class Webhooks(_WebhookModel):
    """All that the caller may know of."""

    webhooks: list[Webhook]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class WebhookDelivery(_WebhookModel):
    """One event for one webhook."""

    event_id: Annotated[str, Field(description="The `webhook-id` of each attempt.", examples=[EVENT_ID])]
    type: Annotated[str, Field(examples=["command.succeeded"])]
    progress: Annotated[Progress, Field(description="`waiting`, also between attempts.")]
    attempts: int
    status: Annotated[int | None, Field(description="What the receiver answered last; null when it did not.")]
    reason: Annotated[str | None, Field(description="Why the last attempt failed.")]
    created_at: Instant
    attempted_at: Instant | None
    next_at: Annotated[Instant | None, Field(description="About when it is tried again.")]
    body: Annotated[JsonValue, Field(description="What is sent.")]


class WebhookDeliveries(_WebhookModel):
    """Those that wait, the next one first, then those that ended, the last one first."""

    waiting: Annotated[int, Field(description="How many wait in all.")]
    deliveries: list[WebhookDelivery]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class WebhookTest(_WebhookModel):
    """What became of an event that was sent as a test."""

    delivered: bool
    status: Annotated[int | None, Field(description="What the receiver answered; null when it did not.")]
    reason: Annotated[str | None, Field(description="Why it failed.")]


def webhook_json(one: Endpoint) -> dict[str, Any]:
    """As `Webhook`."""
    return {
        "id": one.id,
        "tenant": one.tenant,
        "url": one.url,
        "events": sorted(one.events),
        "devices": one.devices,
        "methods": one.methods,
        "created_at": instant(one.created_at),
        "rotated_at": _instant(one.rotated_at),
        "enabled": one.enabled,
        "disabled_at": _instant(one.disabled_at),
        "disabled_reason": one.disabled_reason,
    }


def delivery_json(one: Delivery) -> dict[str, Any]:
    """As `WebhookDelivery`, without the body, which is JSON already."""
    return {
        "event_id": one.event_id,
        "type": one.type,
        "progress": one.progress,
        "attempts": one.attempts,
        "status": one.status,
        "reason": one.reason or None,
        "created_at": instant(one.created_at),
        "attempted_at": _instant(one.attempted_at),
        "next_at": _instant(one.next_at),
    }


def _instant(microseconds: int | None) -> str | None:
    return None if microseconds is None else instant(microseconds)
