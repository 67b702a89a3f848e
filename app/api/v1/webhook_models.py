"""Webhooks, as they go in and out."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictInt

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
        description="An https URL of a public address, without user, password or fragment.",
        examples=["https://a.example/hook"],
    ),
]
_Events = Annotated[
    list[str], Field(description=f"The events to deliver: {_EVENTS}.", examples=[["command.succeeded"]])
]
_Devices = Annotated[
    str,
    Field(
        description="A pattern of the devices whose commands are delivered; `*` matches any text.", examples=["dock-*"]
    ),
]
_Methods = Annotated[
    str, Field(description="A pattern of the methods to deliver, as `profile:method`.", examples=["dji:*"])
]


_Batch = Annotated[
    StrictInt, Field(description="The most events of the queue in one delivery: 1 to 64, by default 32.")
]


class _WebhookModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewWebhook(_WebhookModel):
    """A URL, and the events that are delivered to it."""

    url: _Url
    events: _Events | None = None
    devices: _Devices | None = None
    methods: _Methods | None = None
    queue: Annotated[
        str | None,
        Field(
            description="A queue whose events are delivered, in place of outcomes of commands: `events`, `devices` and "
            "`methods` are left out then. The caller needs `consume` on the queue.",
            examples=["alarms"],
        ),
    ] = None
    batch: _Batch | None = None
    tenant: Annotated[
        str | None,
        Field(description="The tenant that owns the webhook. Only operators of Homing itself may set it."),
    ] = None


class WebhookChange(_WebhookModel):
    """Changes to a webhook. Fields that are left out stay as they are."""

    url: _Url | None = None
    events: _Events | None = None
    devices: _Devices | None = None
    methods: _Methods | None = None
    batch: _Batch | None = None
    enabled: Annotated[StrictBool | None, Field(description="Deliveries to a disabled webhook are kept for a day.")] = (
        None
    )


class Webhook(_WebhookModel):
    """A webhook: a URL and the events that are delivered to it."""

    id: Annotated[str, Field(examples=[WEBHOOK_ID])]
    tenant: Annotated[
        str, Field(description="The tenant that owns the webhook; empty on a node without authentication.")
    ]
    url: _Url
    events: _Events
    devices: _Devices
    methods: _Methods
    queue: Annotated[str | None, Field(description="The queue whose events are delivered; null for outcomes.")]
    batch: Annotated[int | None, Field(description="The most events of the queue in one delivery.")]
    created_at: Instant
    rotated_at: Annotated[Instant | None, Field(description="The instant of the last change of its secret.")]
    enabled: bool
    disabled_at: Instant | None
    disabled_reason: str | None


class WebhookWithSecret(Webhook):
    """A webhook with its secret, which is shown only once."""

    secret: Annotated[
        str,
        Field(
            description="A symmetric secret of Standard Webhooks 1.0, as libraries that verify signatures take it.",
            examples=["whsec_…"],
        ),
    ]


class Webhooks(_WebhookModel):
    """A page of the webhooks that the caller may see."""

    webhooks: list[Webhook]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class WebhookDelivery(_WebhookModel):
    """The delivery of one event to one webhook."""

    event_id: Annotated[
        str, Field(description="The id of the event, which each attempt sends as `webhook-id`.", examples=[EVENT_ID])
    ]
    type: Annotated[str, Field(examples=["command.succeeded"])]
    progress: Annotated[
        Progress, Field(description="The state of the delivery; it is `waiting` between attempts, too.")
    ]
    attempts: int
    status: Annotated[int | None, Field(description="The receiver's last HTTP status; null if it did not answer.")]
    reason: Annotated[str | None, Field(description="The reason why the last attempt failed.")]
    created_at: Instant
    attempted_at: Instant | None
    next_at: Annotated[Instant | None, Field(description="The approximate time of the next attempt.")]
    body: Annotated[JsonValue, Field(description="The body that is sent.")]


class WebhookDeliveries(_WebhookModel):
    """Waiting deliveries, next one first, followed by finished ones, latest first."""

    waiting: Annotated[int, Field(description="The total number of waiting deliveries.")]
    deliveries: list[WebhookDelivery]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class WebhookTest(_WebhookModel):
    """The result of a test event."""

    delivered: bool
    status: Annotated[int | None, Field(description="The receiver's HTTP status; null if it did not answer.")]
    reason: Annotated[str | None, Field(description="The reason why the test failed.")]


def webhook_json(one: Endpoint) -> dict[str, Any]:
    """As `Webhook`."""
    return {
        "id": one.id,
        "tenant": one.tenant,
        "url": one.url,
        "events": sorted(one.events),
        "devices": one.devices,
        "methods": one.methods,
        "queue": one.queue or None,
        "batch": one.batch or None,
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
