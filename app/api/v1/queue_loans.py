"""Events that queues lend to consumers, over HTTP: taken and settled, and the consumers themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Final, TypeVar

import orjson
from fastapi import Path, Request
from fastapi import Response as Reply
from starlette.requests import ClientDisconnect

from app.api.http import BytesResponse
from app.api.openapi import problems_of
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute
from app.api.v1 import queue_models as models
from app.api.v1.queue_counter import CONSUMES, MANAGES, OF_ONE, AtCounter, QueueName
from app.api.v1.queue_models import check_consumer, duration_of, message_json
from app.api.v1.settlements import settlement_of
from app.core import errors
from app.core.access.rules import Action
from app.core.errors import InvalidInputError
from app.core.queues.loans import CONSUMER_BYTES

LONGEST_WAIT: Final = timedelta(seconds=60)
T = TypeVar("T")

router = GuardedRouter(prefix="/v1/queues", tags=["queues"], route_class=StrictBodyRoute)


@router.post(
    "/{name}/take",
    summary="Take events from a queue",
    response_model=models.TakenEvents,
    response_description="The events that were lent; none if there were none in time.",
    responses=problems_of(BY_ERROR[errors.CapacityError], *OF_ONE),
    openapi_extra=CONSUMES,
)
async def take_from_queue(request: Request, name: QueueName, body: models.TakeBody, counter: AtCounter) -> Reply:
    """Lends events to a consumer, who settles each before `until`; else it is lent again.

    Fewer than `max` may come, and events that failed before come alone.
    """
    queue = await counter.find(name, Action.CONSUME)
    if not 1 <= body.max <= models.MOST_TAKEN:
        raise InvalidInputError("max", f"{body.max} is out of range; allowed: 1 to {models.MOST_TAKEN}")
    if not 1 <= body.max_bytes <= models.MOST_BYTES:
        raise InvalidInputError("max_bytes", f"{body.max_bytes} is out of range; allowed: 1 to {models.MOST_BYTES}")
    wait = duration_of("wait", body.wait)
    if wait > LONGEST_WAIT:
        raise InvalidInputError("wait", f"{body.wait} is too long; allowed: up to 60s")
    check_consumer("consumer", body.consumer)
    taking = counter.plane.take(queue, body.max, body.consumer, wait.total_seconds(), body.max_bytes, auto=body.auto)
    messages = await _unless_gone(request, taking)
    full = not messages and await counter.plane.is_full(queue)
    return BytesResponse(
        b'{"events":[%b],"full":%b}' % (b",".join(map(message_json, messages)), b"true" if full else b"false")
    )


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return what comes of it; ClientDisconnect when the caller hangs up before, and then nothing comes of it."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post(
    "/{name}/settle",
    summary="Settle events that were taken",
    response_model=models.SettledEvents,
    response_description="The number of events that were settled, and the loans that are over.",
    responses=problems_of(*OF_ONE),
    openapi_extra=CONSUMES,
)
async def settle_loans(name: QueueName, body: models.SettleBody, counter: AtCounter) -> Reply:
    """Says of each event that it is done, to be tried again, dead, or given back; or that it takes longer.

    A loan that is over is no error: the event was settled, or others have it.
    """
    queue = await counter.find(name, Action.CONSUME)
    told = settlement_of(body)
    over = [*told.unknown, *map(str, await counter.plane.settle(queue, told.known))]
    return BytesResponse(orjson.dumps({"settled": told.total - len(over), "over": over}))


@router.get(
    "/{name}/consumers",
    summary="List the consumers of a queue",
    response_model=models.QueueConsumers,
    response_description="The consumers that took within the last minute, by name.",
    responses=problems_of(*OF_ONE),
    openapi_extra=CONSUMES,
)
async def list_queue_consumers(name: QueueName, counter: AtCounter) -> Reply:  # noqa: D103 - its summary says it
    stats = await counter.plane.stats(await counter.find(name, Action.CONSUME))
    return BytesResponse(
        orjson.dumps({"consumers": [{"consumer": one, "asked_at": instant(at)} for one, at in stats.consumers]})
    )


@router.delete(
    "/{name}/consumers/{consumer:path}",
    summary="Send a consumer away",
    response_model=models.ReleasedEvents,
    response_description="The events that the consumer was lent are lent to others at once.",
    responses=problems_of(*OF_ONE),
    openapi_extra=MANAGES,
)
async def delete_queue_consumer(
    name: QueueName,
    consumer: Annotated[
        str,
        Path(
            description="The name of the consumer, with which it takes.",
            json_schema_extra={"maxLength": CONSUMER_BYTES},
            examples=["w1"],
        ),
    ],
    counter: AtCounter,
) -> Reply:
    """Its loans are over, and count as no delivery. Nothing keeps it from taking again: its rights do that."""
    queue = await counter.find(name, Action.QUEUES)
    check_consumer("consumer", consumer)
    released = await counter.plane.send_away(queue, consumer)
    counter.note(name, "send consumer away")
    return BytesResponse(orjson.dumps({"released": released}))
