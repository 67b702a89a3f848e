"""Webhooks over HTTP: who is told of outcomes, and how that went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, Path, Query, Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.access.conditions import tag_of
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import NodePorts, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.pages import MOST_PLACE, Listing
from app.api.parameters import DEFAULT_LIMIT, MOST_LISTED, Limit, ListCursor, ListLimit, check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1 import webhook_models as models
from app.api.v1.command_models import said
from app.api.v1.webhook_models import EVENT_ID, WEBHOOK_ID, delivery_json, webhook_json
from app.audit.recorder import Audit
from app.core import errors
from app.core.access.rules import Action
from app.core.access.snapshot import DEFAULT_TENANT
from app.core.errors import InvalidInputError, WebhooksOffError
from app.core.queues.model import validate_queue_name
from app.core.webhooks.deliveries import EVENT, Progress
from app.core.webhooks.endpoints import ENDPOINT_ID, Endpoint
from app.core.webhooks.places import FIRST, place_of
from app.queues.plane import needed_queues
from app.webhooks.administration import EndpointChange, WebhookAdministrator

_AWAY: Final = (BY_ERROR[errors.StoreUnavailableError], BY_ERROR[errors.WebhooksOffError])
_OF_ONE: Final = (problems.NOT_FOUND, problems.INVALID, *_AWAY)
_CHANGED: Final = BY_ERROR[errors.WebhookChangedError]
_TAG: Final[dict[int | str, dict[str, object]]] = {
    200: {"headers": {"ETag": header("The version of this record, for `If-Match`.")}}
}
_MAY: Final = acts(Action.WEBHOOKS)

router = GuardedRouter(prefix="/v1/webhooks", tags=["webhooks"])

_Id = Annotated[
    str,
    Path(
        description="The id of the webhook.",
        json_schema_extra=said(ENDPOINT_ID),
        examples=[WEBHOOK_ID],
        alias="webhook_id",
    ),
]
_EventId = Annotated[
    str,
    Path(
        description="The id of the delivery's event.",
        json_schema_extra=said(EVENT),
        examples=[EVENT_ID],
        alias="event_id",
    ),
]


class _Desk:
    """Webhooks, for one caller."""

    def __init__(self, administration: WebhookAdministrator, tenant: str | None, audit: Audit | None) -> None:
        self.webhooks = administration
        self.tenant = tenant
        """None: the caller operates Homing itself; "" where nobody is asked for a key."""
        self._audit = audit

    def note(self, webhook_id: str, done: str, parts: Sequence[str] = ()) -> None:
        """Put on record what the caller has done with a webhook."""
        if self._audit is not None:
            self._audit.webhook(webhook_id, self.tenant, done, parts)


async def _desk(ports: NodePorts, asker: WhoAsks) -> _Desk:
    asker.check_own(Action.WEBHOOKS)
    if ports.webhooks is None:
        raise WebhooksOffError("this node has no HOMING_WEBHOOKS_SECRET_KEY")
    identity = asker.identity()
    return _Desk(ports.webhooks, "" if identity is None else identity.tenant, ports.audit)


_AtDesk = Annotated[_Desk, Depends(_desk)]


@router.post(
    "",
    status_code=201,
    summary="Create a webhook",
    response_model=models.WebhookWithSecret,
    response_description="The webhook and its secret, which is shown only once.",
    responses=problems_of(
        problems.INVALID,
        *(BY_ERROR[one] for one in (errors.CapacityError, errors.QueueNotFoundError, errors.QueuesOffError)),
        *_AWAY,
    ),
    openapi_extra=_MAY,
)
async def create_webhook(body: models.NewWebhook, desk: _AtDesk, asker: WhoAsks, ports: NodePorts) -> Reply:
    """Homing posts events of commands that are sent from now on. All nodes know the webhook within a second.

    With a `queue`, Homing posts the events of that queue instead, as a batch of CloudEvents. A 2xx settles them, and
    any other reply has them tried again as the queue says.
    """
    tenant = desk.tenant
    if tenant is None:
        tenant = DEFAULT_TENANT.id if body.tenant is None else body.tenant
    elif body.tenant not in (None, tenant):
        raise InvalidInputError("tenant", f"{body.tenant!a} is not yours; leave it out")
    wanted = EndpointChange(
        url=body.url,
        events=body.events,
        devices=body.devices,
        methods=body.methods,
        queue=body.queue,
        batch=body.batch,
    )
    if body.queue is not None:
        validate_queue_name(body.queue, "queue")
        asker.check_queue(Action.CONSUME, body.queue)
        tenant = body.tenant or "" if desk.tenant is None else tenant  # queues of nobody are those of operators
        await needed_queues(ports.queues).find(tenant, body.queue)
    elif desk.tenant is None:
        await asker.check_tenant(tenant)
    endpoint, secret = await desk.webhooks.create(tenant, wanted)
    desk.note(endpoint.id, "create", [] if body.queue is None else [f"queue {body.queue}"])
    return _json({**webhook_json(endpoint), "secret": secret}, 201)


@router.get(
    "",
    summary="List webhooks",
    response_model=models.Webhooks,
    response_description="The webhooks, oldest first.",
    responses=problems_of(problems.INVALID, *_AWAY),
    openapi_extra=_MAY,
)
async def list_webhooks(
    request: Request, desk: _AtDesk, asker: WhoAsks, limit: ListLimit = MOST_LISTED, cursor: ListCursor = None
) -> Reply:
    """Lists the webhooks of the caller's tenant."""
    check_names(request, ("limit", "cursor"))
    known = await desk.webhooks.all(desk.tenant)
    found, behind = Listing("webhooks", limit, cursor).part(asker.cursors, known, lambda one: one.id)
    return _json({"webhooks": [webhook_json(one) for one in found], "cursor": behind})


@router.get(
    "/{webhook_id}",
    summary="Read a webhook",
    response_model=models.Webhook,
    response_description="The webhook, without its secret.",
    responses=_TAG | problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def read_webhook(webhook_id: _Id, desk: _AtDesk) -> Reply:  # noqa: D103 - its summary says it
    return _tagged(await desk.webhooks.get(desk.tenant, webhook_id))


@router.patch(
    "/{webhook_id}",
    summary="Change, disable or enable a webhook",
    response_model=models.Webhook,
    response_description="The changed webhook.",
    responses=_TAG | problems_of(_CHANGED, BY_ERROR[errors.PreconditionFailedError], *_OF_ONE),
    openapi_extra=_MAY,
)
async def change_webhook(
    webhook_id: _Id, body: models.WebhookChange, condition: Conditional, desk: _AtDesk, asker: WhoAsks
) -> Reply:
    """Deliveries to a disabled webhook are kept for a day. Of a webhook with a queue, it needs `consume` as well."""
    known = await desk.webhooks.get(desk.tenant, webhook_id)
    if known.queue:  # its events go wherever the caller says
        asker.check_queue(Action.CONSUME, known.queue)

    def check(before: Endpoint) -> None:
        condition.check(f"webhook {webhook_id}", _tag(before))

    wanted = EndpointChange(
        url=body.url,
        events=body.events,
        devices=body.devices,
        methods=body.methods,
        enabled=body.enabled,
        batch=body.batch,
    )
    endpoint = await desk.webhooks.change(desk.tenant, webhook_id, wanted, check)
    desk.note(webhook_id, "change", sorted(body.model_fields_set))
    return _tagged(endpoint)


@router.delete(
    "/{webhook_id}",
    status_code=204,
    summary="Delete a webhook",
    response_description="The webhook was deleted, with all deliveries that were waiting.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def remove_webhook(webhook_id: _Id, desk: _AtDesk) -> None:  # noqa: D103 - its summary says it
    await desk.webhooks.remove(desk.tenant, webhook_id)
    desk.note(webhook_id, "remove")


@router.post(
    "/{webhook_id}/rotate",
    summary="Replace the secret of a webhook",
    response_model=models.WebhookWithSecret,
    response_description="The webhook and its secret, which is shown only once.",
    responses=problems_of(_CHANGED, *_OF_ONE),
    openapi_extra=_MAY,
)
async def rotate_webhook(webhook_id: _Id, desk: _AtDesk) -> Reply:
    """Deliveries are signed with both secrets for a day, so that a receiver that knows either one accepts them."""
    endpoint, secret = await desk.webhooks.rotate(desk.tenant, webhook_id)
    desk.note(webhook_id, "rotate")
    return _json({**webhook_json(endpoint), "secret": secret})


@router.post(
    "/{webhook_id}/test",
    summary="Send a test event to a webhook",
    response_model=models.WebhookTest,
    response_description="The result of the test.",
    responses=problems_of(*_OF_ONE, BY_ERROR[errors.CapacityError]),
    openapi_extra=_MAY,
)
async def test_webhook(webhook_id: _Id, desk: _AtDesk) -> Reply:
    """Sends the event once and waits up to 15 s for the receiver. The result has no effect on the webhook."""
    reply = await desk.webhooks.test(desk.tenant, webhook_id)
    desk.note(webhook_id, "test")
    return _json({"delivered": reply.delivered, "status": reply.status, "reason": reply.reason or None})


@router.get(
    "/{webhook_id}/deliveries",
    summary="List the deliveries of a webhook",
    response_model=models.WebhookDeliveries,
    response_description="Waiting deliveries, next one first, followed by finished ones, latest first.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def list_deliveries(
    request: Request,
    webhook_id: _Id,
    desk: _AtDesk,
    asker: WhoAsks,
    outcome: Annotated[
        Progress | SkipJsonSchema[None],
        Query(description="Return only deliveries that wait, were delivered, or were given up.", examples=["given_up"]),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: ListCursor = None,
) -> Reply:
    """Finished deliveries are kept for three days, and at most a thousand of them.

    A delivery that is attempted between two requests may appear on both pages.
    """
    check_names(request, ("outcome", "limit", "cursor"))
    kind = f"deliveries for {asker.principal()}"
    behind = FIRST if cursor is None else place_of(webhook_id, asker.cursors.take(kind, cursor))
    waiting, page = await desk.webhooks.deliveries(desk.tenant, webhook_id, limit, behind, outcome)
    more = None if page.behind is None else asker.cursors.give(kind, page.behind.text(webhook_id), MOST_PLACE)
    shown = [{**delivery_json(one), "body": orjson.Fragment(one.body)} for one in page.deliveries]
    return _json({"waiting": waiting, "deliveries": shown, "cursor": more})


@router.post(
    "/{webhook_id}/deliveries/{event_id}/retry",
    status_code=204,
    summary="Retry a finished delivery",
    response_description="The delivery is attempted now.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=_MAY,
)
async def retry_delivery(webhook_id: _Id, event_id: _EventId, desk: _AtDesk) -> None:
    """Only a finished delivery can be retried. A waiting one is attempted again automatically."""
    await desk.webhooks.again(desk.tenant, webhook_id, event_id)
    desk.note(webhook_id, "retry", [event_id])


def _tag(endpoint: Endpoint) -> str:
    return tag_of(webhook_json(endpoint))


def _tagged(endpoint: Endpoint) -> Reply:
    return BytesResponse(orjson.dumps(webhook_json(endpoint)), headers=[etag(_tag(endpoint))])


def _json(content: dict[str, Any], status: int = 200) -> Reply:
    return BytesResponse(orjson.dumps(content), status=status)
