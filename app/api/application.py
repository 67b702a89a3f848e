"""The HTTP application of a node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from app import __version__
from app.api import openapi, problems, schemas
from app.api.cluster import ClusterApi
from app.api.commands import Commands
from app.api.http import Endpoint, Route
from app.api.parking import Parking
from app.node import Node
from app.profiles.timeouts import load_timeouts
from app.settings import Settings

if TYPE_CHECKING:
    from app.tracing import Tracing

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

SEND: Final = "/v1/devices/{device_id}/commands"
DESCRIPTION: Final = (
    "Sends commands to drones and other IoT devices over MQTT and brings their responses home, to whichever node and "
    "caller waits for them. Every error is `application/problem+json` (RFC 9457)."
)


class Application(FastAPI):
    """FastAPI whose documentation knows our models, without the layers that our routes make no use of."""

    def build_middleware_stack(self) -> ASGIApp:
        """Only the handling of errors, as long as no ordinary FastAPI route needs the rest."""
        plain = all(isinstance(route, Route) for route in self.routes if isinstance(route, APIRoute))
        if self.user_middleware or not plain:
            return super().build_middleware_stack()
        handlers = dict(self.exception_handlers)
        last_resort = handlers.pop(Exception, None)
        return ServerErrorMiddleware(ExceptionMiddleware(self.router, handlers), last_resort)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"] = {"schemas": dict(schemas.components())}
        return super().openapi()


def create_application(node: Node, settings: Settings, lifespan: Lifespan) -> FastAPI:
    """Put the HTTP side together. Call `application.state.parking.dismiss()` when the node is about to stop.

    ConfigurationError when the file of learned timeouts is wrong.
    """
    parking = Parking(node.counters)
    commands = Commands(node, settings, parking, load_timeouts(settings.timeouts.file))
    application = Application(
        title="Homing",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        routes=_routes(commands, ClusterApi(node), node.tracing),
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looks for its providers in every request
    )
    application.state.parking = parking
    application.state.counters = node.counters
    problems.install(application)
    return application


def _routes(commands: Commands, cluster: ClusterApi, tracing: Tracing | None) -> list[BaseRoute]:
    """Each route with its description; the busiest stands first, as they are tried in order."""
    send: Endpoint = commands.send
    if tracing is not None:
        from app.api.traced import traced_endpoint  # noqa: PLC0415 - its library is an extra

        send = traced_endpoint(send, tracing, "POST", SEND)
    return [
        _route("POST", SEND, send, openapi.send()),
        _route("GET", "/v1/commands/{command_id}", commands.read, openapi.read()),
        _route("GET", "/v1/commands", commands.list, openapi.list_commands()),
        _route("DELETE", "/v1/commands/{command_id}", commands.cancel, openapi.cancel()),
        _route("GET", "/v1/nodes", cluster.nodes, openapi.nodes()),
        _route("GET", "/healthz", cluster.alive, openapi.alive()),
        _route("GET", "/readyz", cluster.ready, openapi.ready()),
        _route("GET", "/metrics", cluster.metrics, openapi.metrics()),
    ]


def _route(method: str, path: str, endpoint: Endpoint, described: openapi.Described) -> Route:
    return Route(path, endpoint, methods=[method], openapi_extra=described)
