"""Queues over HTTP: declared, bound, read, emptied and deleted; `queue_loans` is how consumers take from them."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.access.conditions import Precondition, tag_of
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import Events, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import header, problems_of
from app.api.pages import Listing
from app.api.parameters import MOST_LISTED, ListCursor, ListLimit, check_names, query
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute
from app.api.v1 import queue_models as models
from app.api.v1.event_parameters import DEFAULT_LIMIT, Begin, EventCursor, EventLimit, start_of, text_of
from app.api.v1.queue_counter import AWAY, CONSUMES, MANAGES, OF_ONE, AtCounter, QueueName
from app.api.v1.queue_models import (
    letter_json,
    options_of,
    queue_json,
    routes_of,
)
from app.core import errors
from app.core.access.rules import Action
from app.core.errors import InvalidInputError
from app.core.events.instants import parse_position
from app.core.queues.letters import read_letter
from app.core.queues.model import DeclaredQueue, validate_queue_name
from app.events.gate import call_budget

_TAG: Final[dict[int | str, dict[str, object]]] = {
    200: {"headers": {"ETag": header("The version of this record, for `If-Match`.")}}
}

router = GuardedRouter(prefix="/v1/queues", tags=["queues"], route_class=StrictBodyRoute)


@router.put(
    "/{name}",
    summary="Declare a queue, or change it",
    response_model=models.LogQueue,
    response_description="The queue; it was declared so already.",
    responses=_TAG
    | {201: {"description": "The queue was created.", "headers": _TAG[200]["headers"], "model": models.LogQueue}}
    | problems_of(
        problems.INVALID,
        *(BY_ERROR[one] for one in (errors.QueueDiffersError, errors.QueueChangedError, errors.CapacityError)),
        BY_ERROR[errors.PreconditionFailedError],
        *AWAY,
    ),
    openapi_extra=MANAGES,
)
async def declare_queue(name: QueueName, body: models.QueueBody, condition: Conditional, counter: AtCounter) -> Reply:
    """Declaring the same queue again changes nothing. To change it, send `If-Match` with its tag.

    The caller needs `read` on all devices as well. `start` counts for a new queue only.
    """
    validate_queue_name(name)
    counter.asker.check_queue(Action.QUEUES, name)
    counter.asker.check_own(Action.READ)
    start = None
    if body.start not in (None, "now"):
        start = parse_position("start", body.start or "", await counter.plane.now())

    def check(there: DeclaredQueue | None) -> bool:
        condition.check(f"queue {name}", None if there is None else tag_of(queue_json(there)))
        return condition.match is not None

    queue, new = await counter.plane.declare(counter.tenant, name, options_of(body), start, check)
    counter.note(name, "declare")
    shown = queue_json(queue)
    return BytesResponse(orjson.dumps(shown), status=201 if new else 200, headers=[etag(tag_of(shown))])


_REROUTES: Final = _TAG | problems_of(
    *(BY_ERROR[one] for one in (errors.QueueChangedError, errors.PreconditionFailedError)), *OF_ONE
)


@router.post(
    "/{name}/bind",
    summary="Add routes to a queue",
    response_model=models.LogQueue,
    response_description="The queue with these routes, whether or not it had them before.",
    responses=_REROUTES,
    openapi_extra=MANAGES,
)
async def bind_queue(name: QueueName, body: models.RoutesBody, condition: Conditional, counter: AtCounter) -> Reply:
    """The caller needs `read` on all devices as well. A database that is new to the queue is read from now on."""
    counter.asker.check_queue(Action.QUEUES, validate_queue_name(name))
    counter.asker.check_own(Action.READ)
    return await _rerouted(name, body, condition, counter, add=True)


@router.post(
    "/{name}/unbind",
    summary="Remove routes from a queue",
    response_model=models.LogQueue,
    response_description="The queue without these routes, whether or not it had them before.",
    responses=_REROUTES,
    openapi_extra=MANAGES,
)
async def unbind_queue(name: QueueName, body: models.RoutesBody, condition: Conditional, counter: AtCounter) -> Reply:
    """Events that the queue has looked at already are delivered still. The last route of a queue cannot be removed."""
    return await _rerouted(name, body, condition, counter, add=False)


async def _rerouted(
    name: str, body: models.RoutesBody, condition: Precondition, counter: AtCounter, *, add: bool
) -> Reply:
    queue = await counter.find(name, Action.QUEUES)

    def check(there: DeclaredQueue) -> None:
        condition.check(f"queue {name}", tag_of(queue_json(there)))

    changed = await counter.plane.reroute(queue, routes_of(body.routes), check, add=add)
    counter.note(name, "bind" if add else "unbind")
    shown = queue_json(changed)
    return BytesResponse(orjson.dumps(shown), headers=[etag(tag_of(shown))])


@router.get(
    "",
    summary="List queues",
    response_model=models.LogQueues,
    response_description="The queues of the caller's tenant, by name.",
    responses=problems_of(problems.INVALID, *AWAY),
    openapi_extra=MANAGES,
)
async def list_queues(
    request: Request, counter: AtCounter, asker: WhoAsks, limit: ListLimit = MOST_LISTED, cursor: ListCursor = None
) -> Reply:
    """Lists queues without their counts."""
    check_names(request, ("limit", "cursor"))
    asker.check_own(Action.QUEUES)
    known = [one for one in (await counter.plane.known()).all if one.tenant == counter.tenant]
    found, behind = Listing("queues", limit, cursor).part(asker.cursors, known, lambda one: one.name)
    return BytesResponse(orjson.dumps({"queues": [queue_json(one) for one in found], "cursor": behind}))


@router.get(
    "/{name}",
    summary="Read a queue",
    response_model=models.LogQueueWithCounts,
    response_description="The queue, and how it stands.",
    responses=_TAG | problems_of(*OF_ONE),
    openapi_extra=CONSUMES,
)
async def read_queue(name: QueueName, counter: AtCounter) -> Reply:
    """Consumers may read the queue that they take from."""
    queue = await counter.find(name, Action.CONSUME)
    shown = queue_json(queue)
    counts = models.counts_json(await counter.plane.stats(queue))
    return BytesResponse(orjson.dumps({**shown, "counts": counts}), headers=[etag(tag_of(shown))])


@router.head("/{name}", include_in_schema=False)  # as RFC 9110 says of any resource that can be read
async def has_queue(name: QueueName, counter: AtCounter) -> Reply:
    """Return whether there is a queue."""
    await counter.find(name, Action.CONSUME)
    return BytesResponse(b"")


@router.delete(
    "/{name}",
    status_code=204,
    summary="Delete a queue",
    response_description="The queue was deleted. The events are in the log still.",
    responses=problems_of(*(BY_ERROR[one] for one in (errors.QueueNotEmptyError, errors.QueueChangedError)), *OF_ONE),
    openapi_extra=MANAGES,
)
async def delete_queue(
    request: Request,
    name: QueueName,
    counter: AtCounter,
    if_: Annotated[
        str | SkipJsonSchema[None],
        query("Delete it only if nothing waits in it.", "empty", "empty", alias="if"),
    ] = None,
) -> None:
    """Dead letters stay in the log as well."""
    check_names(request, ("if",))
    if if_ not in (None, "empty"):
        raise InvalidInputError("if", f"{if_[:32]!a} is no condition; allowed: empty")
    await counter.plane.delete(await counter.find(name, Action.QUEUES), if_empty=if_ == "empty")
    counter.note(name, "delete")


@router.post(
    "/{name}/rewind",
    status_code=204,
    summary="Let a queue go on elsewhere",
    response_description="The queue goes on there. What consumers had is over.",
    responses=problems_of(BY_ERROR[errors.QueueChangedError], *OF_ONE),
    openapi_extra=MANAGES,
)
async def rewind_queue(name: QueueName, body: models.RewindBody, counter: AtCounter) -> None:
    """Events after the instant are delivered, though they were settled; those before it are not.

    An instant ahead is now.
    """
    queue = await counter.find(name, Action.QUEUES)
    to = None if body.to == "now" else parse_position("to", body.to, await counter.plane.now())
    await counter.plane.moves.rewind(queue, to)
    counter.note(name, "rewind")


@router.post(
    "/{name}/purge",
    status_code=204,
    summary="Empty a queue",
    response_description="Nothing waits in the queue any more.",
    responses=problems_of(BY_ERROR[errors.QueueChangedError], *OF_ONE),
    openapi_extra=MANAGES,
)
async def purge_queue(name: QueueName, counter: AtCounter) -> None:
    """The same as a rewind to `now`: the events are in the log still."""
    await counter.plane.moves.rewind(await counter.find(name, Action.QUEUES), None)
    counter.note(name, "purge")


@router.post(
    "/{name}/redrive",
    status_code=204,
    summary="Deliver dead letters again",
    response_description="The dead letters are in the queue again.",
    responses=problems_of(BY_ERROR[errors.QueueChangedError], *OF_ONE),
    openapi_extra=MANAGES,
)
async def redrive_queue(name: QueueName, counter: AtCounter, body: models.RedriveBody | None = None) -> None:
    """Consumers get the original events, whose deliveries are counted anew. Each letter is delivered again once."""
    queue = await counter.find(name, Action.QUEUES)
    text = None if body is None else body.until
    until = None if text is None else parse_position("until", text, await counter.plane.now())
    await counter.plane.moves.redrive(queue, until)
    counter.note(name, "redrive")


@router.get(
    "/{name}/dead",
    summary="Read the dead letters of a queue",
    response_model=models.DeadLetters,
    response_description="A page of dead letters, oldest first.",
    responses=problems_of(*OF_ONE, BY_ERROR[errors.EventsOffError]),
    openapi_extra=CONSUMES,
)
async def read_dead_letters(
    request: Request,
    name: QueueName,
    counter: AtCounter,
    events: Events,
    begin: Begin,
    cursor: EventCursor = None,
    limit: EventLimit = DEFAULT_LIMIT,
) -> Reply:
    """Each letter says why, how often it was delivered, and has the original event."""
    check_names(request, ("since", "from", "cursor", "limit"))
    queue = await counter.find(name, Action.CONSUME)
    home = events.plan.kept[0].name
    scope, start = start_of(events, counter.asker, home, queue.dead_topic, cursor, begin)
    async with call_budget():
        page = await events.reader.page(scope.databases, scope.topic_filter, start, limit)
    letters = [(one.position, letter) for one in page.events if (letter := read_letter(one)) is not None]
    body = b'{"letters":[%b],"cursor":%b,"more":%b}' % (
        b",".join(letter_json(position, letter) for position, letter in letters),
        orjson.dumps(text_of(events, counter.asker, page.cursor, scope)),
        b"true" if page.more else b"false",
    )
    return BytesResponse(body)
