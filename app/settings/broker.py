"""The settings of the MQTT broker in a node."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from app.core.addresses import check_broker_url
from app.core.memory import MOST_SESSIONS
from app.core.sizes import MIB
from app.settings.fields import OptionalFile, SettingsGroup


class BrokerSettings(SettingsGroup):
    """The MQTT broker in the node, whose sessions are kept where the store is."""

    url: str = ""
    """The URL that the broker listens on without encryption: `mqtt://address:port`."""
    tls_url: str = ""
    """The URL that the broker listens on with TLS: `mqtts://address:port`. Without a URL there is no broker."""
    cert_file: OptionalFile = None
    """A PEM file of the broker's certificate, followed by those that lead to its authority."""
    key_file: OptionalFile = None
    """A PEM file of the key of that certificate, without a password."""
    client_ca_file: OptionalFile = None
    """A PEM file of the authorities whose certificates devices may log in with. If None, nobody is asked for one."""
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    """The maximum number of connections of MQTT clients, this node's own included."""
    max_connections_per_peer: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """The maximum number of connections of MQTT clients from one IPv4 address or IPv6 network (/64)."""
    max_connects_per_peer: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The maximum number of CONNECT packets from one of these in a second."""
    max_sessions: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = 20_000
    """The maximum number of sessions of MQTT clients, those without a connection included."""
    max_subscriptions: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = 200_000
    """The maximum number of subscriptions of all sessions together."""

    max_waiting_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = 128 * MIB
    """The maximum size of all messages that wait for clients or are on the way to them."""
    max_retained_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = 64 * MIB
    """The maximum size of all retained messages."""

    max_process_bytes: Annotated[int, Field(ge=0, le=2**40)] = 0
    """The memory that the whole process may take before no new session begins. 0 has no bound."""

    @property
    def listens(self) -> bool:
        """True if the node has a broker of its own."""
        return bool(self.url or self.tls_url)

    @field_validator("url")
    @classmethod
    def _address_alone(cls, value: str) -> str:
        if value:
            check_broker_url(value)
        return value

    @field_validator("tls_url")
    @classmethod
    def _tls_address_alone(cls, value: str) -> str:
        if value:
            check_broker_url(value, "mqtts")
        return value

    @model_validator(mode="after")
    def _files_for_tls(self) -> Self:
        if self.tls_url and not (self.cert_file and self.key_file):
            raise ValueError("HOMING_BROKER_TLS_URL needs HOMING_BROKER_CERT_FILE and HOMING_BROKER_KEY_FILE")
        if (self.cert_file or self.key_file) and not self.tls_url:
            raise ValueError(
                "HOMING_BROKER_CERT_FILE and HOMING_BROKER_KEY_FILE need HOMING_BROKER_TLS_URL, such as "
                "mqtts://127.0.0.1:8883"
            )
        if self.client_ca_file and not self.tls_url:
            raise ValueError("HOMING_BROKER_CLIENT_CA_FILE needs HOMING_BROKER_TLS_URL, as TLS shows certificates")
        return self
