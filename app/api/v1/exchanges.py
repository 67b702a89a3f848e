"""Exchanges over HTTP: declared, and said something in; queues choose by key what they get of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, Path, Request
from fastapi import Response as Reply

from app.api import problems
from app.api.dependencies import Asker, NodePorts, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute, check_readable, unreadable_of
from app.api.v1 import exchange_models as models
from app.api.v1.command_models import said
from app.api.v1.event_parameters import IdempotencyKey
from app.api.v1.exchange_messages import keyed_message, receipt_json
from app.api.v1.exchange_models import exchange_json
from app.api.v1.queue_counter import AWAY, MANAGES
from app.core import errors
from app.core.access.rules import Action
from app.core.queues.exchanges import NAME, DeclaredExchange, validate_exchange_name
from app.queues.plane import QueuePlane, needed_queues

_OF_ONE: Final = (BY_ERROR[errors.ExchangeNotFoundError], problems.INVALID, *AWAY)
_CREATED: Final[dict[int | str, dict[str, object]]] = {
    201: {"description": "The exchange was created.", "model": models.Exchange}
}

router = GuardedRouter(prefix="/v1/exchanges", tags=["queues"], route_class=StrictBodyRoute)

_Name = Annotated[
    str,
    Path(description="The name of the exchange.", json_schema_extra=said(NAME), examples=["ops"], alias="name"),
]


class _Hall:
    """Exchanges, for one caller."""

    def __init__(self, plane: QueuePlane, asker: Asker, ports: NodePorts) -> None:
        self.plane = plane
        self.asker = asker
        self.tenant = asker.tenant()
        self._audit = ports.audit

    def check(self, name: str, action: Action) -> None:
        """Return when the caller may do this with an exchange of this name."""
        self.asker.check_exchange(action, validate_exchange_name(name))

    async def find(self, name: str, action: Action) -> DeclaredExchange:
        """The exchange, where the caller may do this with it; ExchangeNotFoundError, ForbiddenError."""
        self.check(name, action)
        return await self.plane.find_exchange(self.tenant, name)

    def note(self, name: str, done: str) -> None:
        """Put on record what the caller has done with an exchange."""
        if self._audit is not None:
            self._audit.queue(name, self.tenant, done)


async def _hall(ports: NodePorts, asker: WhoAsks) -> _Hall:
    return _Hall(needed_queues(ports.queues), asker, ports)


_InHall = Annotated[_Hall, Depends(_hall)]


@router.put(
    "/{name}",
    summary="Declare an exchange",
    response_model=models.Exchange,
    response_description="The exchange; it was declared so already.",
    responses=_CREATED
    | problems_of(
        problems.INVALID,
        *(BY_ERROR[one] for one in (errors.ExchangeDiffersError, errors.QueueChangedError, errors.CapacityError)),
        *AWAY,
    ),
    openapi_extra=MANAGES,
)
async def declare_exchange(name: _Name, body: models.ExchangeBody, hall: _InHall) -> Reply:
    """Declaring the same exchange again changes nothing. The kind of an exchange cannot be changed."""
    hall.check(name, Action.QUEUES)
    exchange, new = await hall.plane.declare_exchange(hall.tenant, name, body.kind)
    hall.note(name, "declare exchange")
    return _json(exchange_json(exchange), 201 if new else 200)


@router.get(
    "",
    summary="List exchanges",
    response_model=models.Exchanges,
    response_description="The exchanges of the caller's tenant, by name.",
    responses=problems_of(problems.INVALID, *AWAY),
    openapi_extra=MANAGES,
)
async def list_exchanges(request: Request, hall: _InHall) -> Reply:
    """Lists exchanges without their routes."""
    check_names(request, ())
    hall.asker.check_own(Action.QUEUES)
    known = await hall.plane.known()
    return _json({"exchanges": [exchange_json(one) for one in known.exchanges(hall.tenant)]})


@router.get(
    "/{name}",
    summary="Read an exchange",
    response_model=models.ExchangeWithRoutes,
    response_description="The exchange, and the queues that have routes from it.",
    responses=problems_of(*_OF_ONE),
    openapi_extra=MANAGES,
)
async def read_exchange(name: _Name, hall: _InHall) -> Reply:  # noqa: D103 - its summary says it
    exchange = await hall.find(name, Action.QUEUES)
    routes = [{"queue": queue, "key": key} for queue, key in (await hall.plane.known()).routes_from(exchange)]
    return _json({**exchange_json(exchange), "routes": routes})


@router.delete(
    "/{name}",
    status_code=204,
    summary="Delete an exchange",
    response_description="The exchange was deleted. The messages are in the log still.",
    responses=problems_of(*(BY_ERROR[one] for one in (errors.ExchangeInUseError, errors.QueueChangedError)), *_OF_ONE),
    openapi_extra=MANAGES,
)
async def delete_exchange(name: _Name, hall: _InHall) -> None:
    """An exchange from which queues have routes cannot be deleted."""
    hall.check(name, Action.QUEUES)
    await hall.plane.delete_exchange(hall.tenant, name)
    hall.note(name, "delete exchange")


@router.post(
    "/{name}/messages",
    summary="Publish a message to an exchange",
    response_model=models.SaidInExchange,
    response_description="The message is durable; the answer names the queues that get it.",
    responses=problems_of(
        BY_ERROR[errors.UnroutedError],
        BY_ERROR[errors.CallMismatchError],
        BY_ERROR[errors.PayloadTooLargeError],
        BY_ERROR[errors.QuotaError],
        *_OF_ONE,
    ),
    openapi_extra=acts(Action.PUBLISH),
)
async def publish_message(
    request: Request, name: _Name, body: models.ExchangeMessage, hall: _InHall, idempotency_key: IdempotencyKey = None
) -> Reply:
    """The message is an event of the log. Queues that are declared later get it if they start before it."""
    exchange = await hall.find(name, Action.PUBLISH)
    message = keyed_message(
        hall.asker, exchange, body, idempotency_key, "body", readable=unreadable_of(request) is None
    )
    check_readable(request)
    return _json(receipt_json(await hall.plane.publisher.publish(message)))


def _json(content: dict[str, Any], status: int = 200) -> Reply:
    return BytesResponse(orjson.dumps(content), status=status)
