"""The cluster at a glance over HTTP: once, or whenever it changes."""

from __future__ import annotations

from fastapi import Response as Reply

from app.api.dependencies import Overviews, WhoAsks
from app.api.http import NO_STORE, BytesResponse
from app.api.openapi import knows, problems_of
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1 import overview_models as schemas
from app.core import errors

router = GuardedRouter(prefix="/v1", tags=["cluster"])


@router.get(
    "/overview",
    summary="Read the state of the cluster, its troubles and open commands at a glance",
    response_model=schemas.Overview,
    response_description="The overview, two seconds old at most.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def read_overview(overviews: Overviews, asker: WhoAsks) -> Reply:
    """Asks all nodes at most every two seconds, whoever calls. The verdict names the first party that is in trouble.

    The parties are Homing itself, the MQTT broker, devices and callers, in this order. Commands count only if the
    caller may read them. A verdict that is not certain blames nobody. The last hour is what the nodes that live have
    seen of it: a node that was restarted has forgotten what was before. Its times are read off histograms.
    """
    return BytesResponse((await overviews.read(asker)).body, headers=[NO_STORE])


@router.get(
    "/overview/events",
    summary="Follow the state of the cluster at a glance",
    response_class=Reply,
    response_description="Server-sent events: `overview`, `bookmark`; `problem` if the stream fails.",
    responses={
        200: {"content": {"text/event-stream": {}}},
        **problems_of(BY_ERROR[errors.CapacityError]),
    },
    openapi_extra=knows(),
)
async def follow_overview(overviews: Overviews, asker: WhoAsks) -> Reply:
    """Streams the overview: at once, and when it has changed. It never ends.

    Another party in trouble, another state of a node and another reason of failures are told within two seconds or
    so; what only counts, after six seconds. A `bookmark` event says that nothing else has changed until its instant; it
    is sent after five seconds without an event. There is nothing to resume: each overview is whole.
    """
    return await overviews.follow(asker)
