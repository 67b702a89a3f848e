"""The broker in a node: its sessions and retained messages."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from app.api.representation import instant
from app.api.v1.command_models import Instant, SchemaModel
from app.core.broker.message import Message
from app.core.broker.operators import ClientSessionContent, ClientSessionState
from app.core.broker.session import Outgoing
from app.core.broker.subscriptions import Subscribed

_EXAMPLE: Final[dict[str, Any]] = {
    "client_id": "dock-1",
    "principal": "device:dock-1",
    "own": False,
    "connected": True,
    "since": "2026-03-01T07:59:00.000Z",
    "expiry_s": 3600,
    "kept": True,
    "subscriptions": 1,
    "waiting": 0,
    "in_flight": 1,
    "received": 0,
    "will": None,
}
_NEXT = Field(description="The `cursor` of the next page; null if this is the last one.")


class BrokerSessionShown(SchemaModel):
    """A session of an MQTT client, with or without a connection."""

    client_id: str
    principal: Annotated[
        str | None, Field(description="The principal who began it; null if nobody was asked, and for the node itself.")
    ]
    own: Annotated[bool, Field(description="True for the session of the node itself.")]
    connected: bool
    since: Annotated[Instant, Field(description="When it was connected or lost its connection, or the node started.")]
    expiry_s: Annotated[int, Field(description="The number of seconds that it lives without a connection.")]
    kept: Annotated[bool, Field(description="True if it outlives the node.")]
    subscriptions: int
    waiting: Annotated[int, Field(description="The number of messages that wait to be sent.")]
    in_flight: Annotated[int, Field(description="The number of messages that were sent and not acknowledged.")]
    received: Annotated[int, Field(description="The number of messages of QoS 2 that the client has not released.")]
    will: Annotated[str | None, Field(description="The topic of its will.")]


class BrokerSessionPage(SchemaModel):
    """A page of sessions, by client id."""

    sessions: list[BrokerSessionShown]
    cursor: Annotated[str | None, _NEXT]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"sessions": [_EXAMPLE], "cursor": None},
            ]
        }
    )


class BrokerSubscriptionShown(SchemaModel):
    """A subscription of a session, with the options that the client has given it."""

    filter: Annotated[str, Field(description="The topic filter, with `$share/NAME/` in front if it is shared.")]
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: Annotated[int | None, Field(description="The subscription identifier; null if it has none.")]


class InFlightMessageShown(SchemaModel):
    """A message that the client was sent and has not acknowledged, without its payload."""

    packet_id: int
    topic: str
    qos: int
    bytes: Annotated[int, Field(description="The size of its payload.")]
    released: Annotated[bool, Field(description="True if it is of QoS 2, and the client has said that it has it.")]


class BrokerSessionContent(BrokerSessionShown):
    """A session of an MQTT client, with what it has."""

    filters: list[BrokerSubscriptionShown]
    in_flight_messages: list[InFlightMessageShown]
    received_ids: Annotated[
        list[int], Field(description="Packet identifiers of QoS 2 from the client that it has not released.")
    ]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _EXAMPLE
                | {
                    "filters": [
                        {
                            "filter": "homing/dock-1/command",
                            "qos": 1,
                            "no_local": False,
                            "retain_as_published": False,
                            "retain_handling": 0,
                            "identifier": None,
                        }
                    ],
                    "in_flight_messages": [
                        {"packet_id": 7, "topic": "homing/dock-1/command", "qos": 1, "bytes": 84, "released": False}
                    ],
                    "received_ids": [],
                }
            ]
        }
    )


class RetainedShown(SchemaModel):
    """A retained message without its payload: subscribe to its topic to get that."""

    topic: str
    qos: int
    bytes: Annotated[int, Field(description="The size of its payload.")]
    client_id: Annotated[str, Field(description="The client that published it.")]


class RetainedPage(SchemaModel):
    """A page of retained messages, by topic."""

    retained: list[RetainedShown]
    cursor: Annotated[str | None, _NEXT]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "retained": [{"topic": "homing/dock-1/state", "qos": 1, "bytes": 17, "client_id": "dock-1"}],
                    "cursor": None,
                }
            ]
        }
    )


def session_json(one: ClientSessionState) -> dict[str, Any]:
    """Return a session as the API shows it."""
    return {
        "client_id": one.client_id,
        "principal": one.owner,
        "own": one.own,
        "connected": one.connected,
        "since": instant(round(one.since * 1_000_000)),
        "expiry_s": round(one.expiry),
        "kept": one.kept,
        "subscriptions": one.subscriptions,
        "waiting": one.waiting,
        "in_flight": one.in_flight,
        "received": one.received,
        "will": one.will,
    }


def content_json(one: ClientSessionContent) -> dict[str, Any]:
    """Return a session as the API shows it, with what it has."""
    return session_json(one.state) | {
        "filters": [_subscription_json(each) for each in one.subscriptions],
        "in_flight_messages": [_in_flight_json(each) for each in one.in_flight],
        "received_ids": one.received,
    }


def _subscription_json(one: Subscribed) -> dict[str, Any]:
    options = one.options
    return {
        "filter": options.topic_filter,
        "qos": options.qos,
        "no_local": options.no_local,
        "retain_as_published": options.retain_as_published,
        "retain_handling": options.retain_handling,
        "identifier": one.identifier or None,
    }


def _in_flight_json(one: Outgoing) -> dict[str, Any]:
    message = one.message
    return {
        "packet_id": one.packet_id,
        "topic": message.topic,
        "qos": one.qos,
        "bytes": len(message.payload),
        "released": one.released,
    }


def retained_json(one: Message) -> dict[str, Any]:
    """Return a retained message as the API shows it."""
    return {"topic": one.topic, "qos": one.qos, "bytes": len(one.payload), "client_id": one.publisher}
