"""Exchanges, as they go in and out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from app.api.representation import instant
from app.api.v1.command_models import Instant, said
from app.api.v1.event_models import EventValue
from app.core.queues.exchanges import MOST_KEY_BYTES, NAME, DeclaredExchange, Kind


class _ExchangeModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ExchangeBody(_ExchangeModel):
    """An exchange, as it is declared."""

    kind: Annotated[
        Kind,
        Field(
            description="The choice of routes: the key itself (`direct`), no choice (`fanout`), wildcards (`topic`)."
        ),
    ] = "topic"


class Exchange(ExchangeBody):
    """An exchange."""

    name: Annotated[str, Field(json_schema_extra=said(NAME), examples=["ops"])]
    tenant: str
    database: Annotated[str, Field(description="The database of events where messages are kept.")]
    created_at: Instant


class RouteFrom(_ExchangeModel):
    """A route of a queue."""

    queue: str
    key: str


class ExchangeWithRoutes(Exchange):
    """An exchange, and the queues that have routes from it."""

    routes: list[RouteFrom]


class Exchanges(_ExchangeModel):
    """Exchanges by name."""

    exchanges: list[Exchange]


class ExchangeMessage(EventValue):
    """A message, with `data` as JSON or `data_base64`."""

    key: Annotated[str, Field(description="The key: words joined by dots.", examples=["low.battery"])]
    id: Annotated[
        str,
        Field(description="An id of the message, which consumers get.", max_length=MOST_KEY_BYTES, examples=["m-1"]),
    ] = ""
    device_id: Annotated[
        str | None, Field(description="The device that it is about: queues with `order: device` keep its order.")
    ] = None
    not_before: Annotated[
        str | None,
        Field(
            description="Queues lend the message no earlier: an instant, or a duration from now; up to 24 h ahead.",
            examples=["10s", "2026-11-21T10:00:00Z"],
        ),
    ] = None
    mandatory: Annotated[
        StrictBool, Field(description="False if the message may be kept although no queue has a route for it.")
    ] = True


class SaidInExchange(_ExchangeModel):
    """The place of a message in the log, and the queues that get it."""

    position: int
    routed: list[str]


def exchange_json(exchange: DeclaredExchange) -> dict[str, Any]:
    """An exchange as it is shown."""
    return {
        "name": exchange.name,
        "tenant": exchange.tenant,
        "kind": exchange.kind,
        "database": exchange.database,
        "created_at": instant(exchange.created_us),
    }
