"""The HTTP application of a node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app import __version__
from app.access.ports import Everybody
from app.api import console, front, health, issuer_session, mqtt, problems, session
from app.api.credentials import credential_of
from app.api.escapes import with_device
from app.api.fleet_body import FleetBodyReader
from app.api.hot import HotRoute
from app.api.http import BODY_SECONDS, BytesResponse, headers_of
from app.api.openapi import SECURITY, as_of_open, operation_id, with_border
from app.api.overview_streams import OverviewStreams
from app.api.parking import Parking
from app.api.ports import Ports
from app.api.routers import GuardedRouter, PublicRouter, routes_of
from app.api.sse import SseStreams
from app.api.turns import Turns
from app.api.v1 import (
    access,
    approvals,
    audit,
    broker,
    command_events,
    command_probe,
    command_stream,
    commands,
    connect,
    devices,
    event_stream,
    events,
    exchanges,
    fleets,
    interlocks,
    keys,
    lanes,
    login,
    me,
    named_cursors,
    nodes,
    overview,
    people,
    profiles,
    queue_loans,
    queues,
    schedules,
    state,
    traffic,
    webhooks,
)
from app.api.v1.unseen_models import unseen
from app.core.errors import HomingError
from app.profiles.timeouts import load_timeouts
from app.settings import Settings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

DESCRIPTION: Final = (
    "Sends commands to drones and other IoT devices over MQTT and brings their responses home, to whichever node and "
    "caller waits for them. Every error is `application/problem+json` (RFC 9457). In addition to the responses listed "
    "for each operation, any request may be answered with `400`, `408`, `413`, `414` or `431` if it cannot be read, "
    "`403` if a page of another origin sent it, `421` if it is for another host, and `503` if this node has reached "
    "its limit of connections."
)


DOCUMENT: Final = "/openapi.json"
GUARDED: Final[tuple[GuardedRouter, ...]] = (
    command_stream.router,  # /commands/events before /commands/{command_id}
    command_events.router,
    commands.router,
    devices.router,
    approvals.router,
    lanes.router,
    command_probe.router,
    interlocks.router,
    nodes.router,
    overview.router,
    event_stream.router,
    events.router,
    named_cursors.router,
    state.router,
    me.router,
    login.guarded,
    profiles.router,
    traffic.router,
    keys.router,
    people.router,
    access.router,
    fleets.router,
    schedules.router,
    webhooks.router,
    exchanges.router,
    queues.router,
    queue_loans.router,
    connect.router,
    broker.router,
    audit.router,
)
"""The routers of which no route answers a caller whom nobody knows."""
PREFIX: Final = "/v1/"
"""The beginning of the paths of all these routes."""
FOR_STRANGERS: Final = frozenset(route.path for route in login.router.routes if isinstance(route, Route))
"""The other paths below it."""
ROUTERS: Final[tuple[PublicRouter, ...]] = (
    *GUARDED,
    login.router,
    mqtt.router,
    front.router,
    session.router,
    issuer_session.router,
    console.router,
    health.probes,
    health.router,
)


class Application(FastAPI):
    """FastAPI with one busy call in front of it.

    ConfigurationError when the file of learned timeouts is wrong. Call `dismiss` when the node is about to
    stop.
    """

    def __init__(self, ports: Ports, settings: Settings, lifespan: Lifespan) -> None:
        super().__init__(
            title="Homing",
            version=__version__,
            description=DESCRIPTION,
            lifespan=lifespan,
            routes=[Route(DOCUMENT, self._document)],  # in front of FastAPI's, which writes it anew for each request
            redirect_slashes=False,
            generate_unique_id_function=operation_id,
            docs_url=None,  # FastAPI's pages load their scripts from elsewhere: ours are in front.py
            redoc_url=None,
            telemetry={"tracing": False, "metrics": False, "logs": False},  # looks for its providers in every request
        )
        self._written = b""
        self.body_seconds = BODY_SECONDS
        self.ports: Final = ports
        counters = ports.node.counters
        self.parking: Final = Parking(counters)
        self.streams: Final = SseStreams(
            counters,
            most=settings.api.max_streams,
            most_per_principal=settings.api.max_streams_per_principal,
        )
        self.overviews: Final = OverviewStreams(
            ports.overviews,
            counters,
            most=settings.api.max_streams,
            most_per_principal=settings.api.max_streams_per_principal,
        )
        self.connections: Final = connect.ConnectSessions(ports, self.streams)
        self.mqtt: Final = mqtt.MqttSockets(ports)
        self.router.routes += [connect.connect_route(self.connections), mqtt.mqtt_route(self.mqtt)]
        self.hot: Final = HotRoute(ports, settings, self.parking, load_timeouts(settings.timeouts.file), self.streams)
        self.fleet_bodies: Final = FleetBodyReader(settings, ports.node.now_us)
        self.lists: Final = Turns()
        self.router.routes += routes_of(ROUTERS)
        problems.install(self, counters)

    def dismiss(self) -> None:
        """Send those away who wait here, as the node is about to stop."""
        self.parking.dismiss()
        self.streams.dismiss()
        self.overviews.dismiss()
        self.connections.dismiss()
        self.mqtt.dismiss()
        if self.ports.queues is not None:
            self.ports.queues.dismiss()

    def recheck(self) -> None:
        """Send those away who may not wait here any more."""
        self.parking.recheck()
        self.streams.recheck()
        self.overviews.recheck()
        self.connections.recheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The busy call, or any other."""
        if b"%" in scope.get("raw_path", b""):
            scope = with_device(scope)
        device_id = self.hot.device_of(scope)
        if device_id is not None:
            await self.hot.answer(device_id, scope, receive, send)
            return
        refusal = self._refusal_of_strangers(scope)
        await (super().__call__ if refusal is None else refusal)(scope, receive, send)

    def _refusal_of_strangers(self, scope: Scope) -> Response | None:
        """Return the refusal of an unknown caller: the framework reads no body of theirs, and costs nothing for them.

        Who is let through here is asked again by the route (`asker`), which is what guards it.
        """
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root) if scope["type"] == "http" else ""
        if not path.startswith(PREFIX) or path in FOR_STRANGERS:
            return None
        try:
            self.ports.access.caller(credential_of(headers_of(scope), self.ports.access))
        except HomingError as error:
            return problems.answer_to(error, self.ports.node.counters, root)
        return None

    async def _document(self, request: Request) -> Response:
        if not self._written:
            servers = [{"url": request.scope.get("root_path", "") or "/"}]  # the same for all requests of a process
            self._written = orjson.dumps({**self.openapi(), "servers": servers})
        return BytesResponse(self._written)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once, with the models that FastAPI does not see in the routes."""
        if self.openapi_schema is None:
            document = super().openapi()
            if isinstance(self.ports.access, Everybody):
                as_of_open(document)
            with_border(document)
            components = document["components"]
            components["schemas"] |= unseen()
            components["securitySchemes"] = SECURITY
        return super().openapi()
