"""The broker of a node: put together on the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import SecretStr

from app.access.plane import AccessPlane
from app.broker.certificate import ServerCertificate
from app.broker.door import AccessDoor, HandRecord
from app.broker.keeper import SessionKeeper
from app.broker.listener import BrokerListener, BrokerSocket
from app.broker.operators import BrokerOperations
from app.broker.stream import MessageStream
from app.broker.topics import DeviceTopics
from app.core.addresses import MQTT_PORTS, is_loopback, split_address
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.journal import BrokerJournal
from app.core.clock import Clock
from app.core.errors import BrokerOffError, ConfigurationError
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service
from app.runtime.sockets import listen
from app.runtime.telemetry import Fill
from app.settings import Settings

OWN_USER: Final = "homing-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlane:
    """The broker of this node, and its services."""

    broker: Broker
    operations: BrokerOperations
    plane: Plane
    open_stream: Callable[[], MessageStream]
    """Opens a stream for a client that comes over another socket than the broker's own; UnavailableError."""


def with_own_login(settings: Settings, secret: str) -> Settings:
    """The settings of a node that logs in at its own broker; unless they have a login already, `secret` is new."""
    mqtt = settings.mqtt
    if not (settings.broker.listens and settings.access.url) or mqtt.password.get_secret_value():
        return settings
    login = {"username": OWN_USER, "password": SecretStr(secret)}
    return settings.model_copy(update={"mqtt": mqtt.model_copy(update=login)})


def open_broker(kernel: Kernel, access: AccessPlane | None, record: HandRecord | None = None) -> BrokerPlane | None:
    """None where the settings name no broker of this node. It listens now, and serves later; ConfigurationError.

    With `access`, clients log in by their keys; without, everybody on this machine may come. Commands that they publish
    by hand go on `record`.
    """
    settings = kernel.settings
    if not settings.broker.listens:
        return None
    sockets = _listen(settings, kernel.clock, strangers=access is not None or settings.access.open)
    limits = settings.broker
    bounds = BrokerBounds(
        connections=limits.max_connections,
        connections_per_peer=limits.max_connections_per_peer,
        connects_per_peer=limits.max_connects_per_peer,
        sessions=limits.max_sessions,
        all_subscriptions=limits.max_subscriptions,
        waiting_bytes=limits.max_waiting_bytes,
        retained_bytes=limits.max_retained_bytes,
        process_bytes=limits.max_process_bytes,
    )
    broker = Broker(
        clock=kernel.clock,
        new_client_id=lambda: f"auto-{kernel.adapters.new_ulid().lower()}",
        counters=kernel.counters,
        bounds=bounds,
        journal=BrokerJournal(keeps=kernel.adapters.sessions is not None),
        door=None if access is None else _door(kernel, access, record),
    )
    kernel.access_changed.add(broker.recheck)
    keeper = None if kernel.adapters.sessions is None else SessionKeeper(broker, kernel.adapters.sessions)
    serving = BrokerListener(broker, sockets, keeper, memory=kernel.adapters.resident_bytes)
    return BrokerPlane(
        broker=broker,
        open_stream=serving.open_stream,
        operations=BrokerOperations(broker, keeper),
        plane=Plane(
            name="broker",
            services=[
                Service(
                    "broker",
                    run=serving.run,
                    close=serving.close,
                    check=lambda: _health(keeper, sockets),
                    fills=lambda: _fills(broker),
                )
            ],
        ),
    )


def _listen(settings: Settings, clock: Clock, *, strangers: bool) -> list[BrokerSocket]:
    """The sockets of the broker; ConfigurationError. With `strangers`, others than this machine may connect."""
    broker, sockets = settings.broker, []
    certificate = None
    if broker.cert_file is not None and broker.key_file is not None:
        certificate = ServerCertificate(broker.cert_file, broker.key_file, clock, broker.client_ca_file)
    for variable, url in (("HOMING_BROKER_URL", broker.url), ("HOMING_BROKER_TLS_URL", broker.tls_url)):
        if not url:
            continue
        parts = split_address(url)
        listener = listen(parts.hostname or "", parts.port or MQTT_PORTS[parts.scheme], variable)
        tls = parts.scheme == "mqtts"
        sockets.append(BrokerSocket(listener, certificate if tls else None))
        address = listener.getsockname()[0]
        if is_loopback(address):
            continue
        if not strangers:
            for one in sockets:
                one.listener.close()
            raise ConfigurationError(
                f"{variable}: {address} can be reached from outside, and this broker does not authenticate its "
                "clients. Listen on 127.0.0.1, or set HOMING_ACCESS_URL to ask them for keys, or set "
                "HOMING_ACCESS_OPEN=true to let everybody in"
            )
        if settings.access.url and not tls:
            structlog.get_logger().warning("broker_unencrypted", address=address)
    return sockets


def _health(keeper: SessionKeeper | None, sockets: Sequence[BrokerSocket]) -> str:
    said = [] if keeper is None else [keeper.health]
    said += [one.certificate.health for one in sockets if one.certificate is not None]
    return next((one for one in said if one != "ok"), "ok")


def _door(kernel: Kernel, access: AccessPlane, record: HandRecord | None) -> AccessDoor:
    mqtt = kernel.settings.mqtt
    topics = DeviceTopics(kernel.languages.profiles.values())
    own = mqtt.username, mqtt.password.get_secret_value()
    return AccessDoor(access.authority, topics, own, kernel.clock.monotonic, record)


def _fills(broker: Broker) -> Mapping[str, Fill]:
    bounds = broker.bounds
    return {
        "broker_connections": Fill(broker.taken, bounds.connections),
        "broker_retained": Fill(len(broker.retained), bounds.retained),
        "broker_sessions": Fill(len(broker.sessions), bounds.sessions),
        "broker_waiting_bytes": Fill(broker.waiting_bytes, bounds.waiting_bytes),
    }


def needed_broker(plane: BrokerPlane | None) -> BrokerPlane:
    """The broker of this node; BrokerOffError where there is none."""
    if plane is None:
        raise BrokerOffError("this node has no broker of its own: HOMING_BROKER_URL is empty")
    return plane
