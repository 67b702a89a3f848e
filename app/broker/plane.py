"""The broker of a node: put together on the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from app.access.plane import AccessPlane
from app.broker.door import AccessDoor
from app.broker.keeper import SessionKeeper
from app.broker.listener import BrokerListener
from app.broker.topics import DeviceTopics
from app.core.addresses import is_loopback, split_address
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.journal import BrokerJournal
from app.core.errors import ConfigurationError
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service
from app.runtime.sockets import listen
from app.runtime.telemetry import Fill
from app.settings import Settings

MQTT_PORT = 1883
OWN_USER = "homing-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlane:
    """The broker of this node, and its services."""

    broker: Broker
    plane: Plane


def with_own_login(settings: Settings, secret: str) -> Settings:
    """The settings of a node that logs in at its own broker; unless they have a login already, `secret` is new."""
    mqtt = settings.mqtt
    if not (settings.broker.url and settings.access.url) or mqtt.password.get_secret_value():
        return settings
    login = {"username": OWN_USER, "password": SecretStr(secret)}
    return settings.model_copy(update={"mqtt": mqtt.model_copy(update=login)})


def open_broker(kernel: Kernel, access: AccessPlane | None) -> BrokerPlane | None:
    """None where the settings name no broker of this node. It listens now, and serves later; ConfigurationError.

    With `access`, clients log in by their keys; without, everybody on this machine may come.
    """
    settings = kernel.settings
    if not settings.broker.url:
        return None
    parts = split_address(settings.broker.url)
    listener = listen(parts.hostname or "", parts.port or MQTT_PORT, "HOMING_BROKER_URL")
    address = listener.getsockname()[0]
    if access is None and not settings.access.open and not is_loopback(address):
        listener.close()
        raise ConfigurationError(
            f"HOMING_BROKER_URL: {address} can be reached from outside, and this broker does not authenticate its "
            "clients. Listen on 127.0.0.1, or set HOMING_ACCESS_URL to ask them for keys, or set "
            "HOMING_ACCESS_OPEN=true to let everybody in"
        )
    bounds = BrokerBounds(connections=settings.broker.max_connections)
    broker = Broker(
        clock=kernel.clock,
        new_client_id=lambda: f"auto-{kernel.adapters.new_ulid().lower()}",
        counters=kernel.counters,
        bounds=bounds,
        journal=BrokerJournal(keeps=kernel.adapters.sessions is not None),
        door=None if access is None else _door(kernel, access),
    )
    kernel.access_changed.add(broker.recheck)
    keeper = None if kernel.adapters.sessions is None else SessionKeeper(broker, kernel.adapters.sessions)
    serving = BrokerListener(broker, listener, keeper)
    return BrokerPlane(
        broker=broker,
        plane=Plane(
            name="broker",
            services=[
                Service(
                    "broker",
                    run=serving.run,
                    close=serving.close,
                    check=None if keeper is None else lambda: keeper.health,
                    fills=lambda: _fills(broker),
                )
            ],
        ),
    )


def _door(kernel: Kernel, access: AccessPlane) -> AccessDoor:
    mqtt = kernel.settings.mqtt
    topics = DeviceTopics(kernel.languages.profiles.values())
    return AccessDoor(access.authority, topics, (mqtt.username, mqtt.password.get_secret_value()))


def _fills(broker: Broker) -> Mapping[str, Fill]:
    bounds = broker.bounds
    return {
        "broker_connections": Fill(len(broker.connections), bounds.connections),
        "broker_retained": Fill(len(broker.retained), bounds.retained),
        "broker_sessions": Fill(len(broker.sessions), bounds.sessions),
        "broker_waiting_bytes": Fill(broker.waiting_bytes, bounds.waiting_bytes),
    }
