"""The address of a broker, the credentials for it, and the bounds of the session with it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import unquote

from app.core.addresses import MQTT_PORTS, split_address
from app.core.errors import ConfigurationError

MqttVersion = Literal["5", "3.1.1"]

MAX_SEND_WINDOW: Final = 60_000
"""Packet identifiers have 16 bits; some stay free for SUBSCRIBE and UNSUBSCRIBE."""

SECRET_LENGTH: Final = 32
"""The length of the part of a node's client id that nobody can guess: 128 bits in hexadecimal digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MqttOptions:
    """Everything that one MQTT client needs to know; raises ConfigurationError when a value is not allowed.

    `receive_maximum` bounds the deliveries that wait for acknowledgement, `send_window` the publishes that wait for
    PUBACK (the broker's Receive Maximum lowers it), `max_packet_size` (bytes) what a device can make us hold.
    """

    client_id: str
    host: str
    port: int = 1883
    version: MqttVersion = "5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    keepalive: timedelta = timedelta(seconds=30)
    connect_timeout: timedelta = timedelta(seconds=5)
    session_expiry: timedelta = timedelta(seconds=60)
    receive_maximum: int = 256
    send_window: int = 1000
    max_packet_size: int = 256 * 1024

    def __post_init__(self) -> None:
        if not self.client_id:
            raise ConfigurationError("MQTT client id: empty, but a session that outlives a connection needs one")
        if self.version not in get_args(MqttVersion):
            raise ConfigurationError(f"MQTT version {self.version!r}: allowed are {', '.join(get_args(MqttVersion))}")
        _check_range("port", self.port, 1, 65_535)
        _check_range("keepalive (seconds)", int(self.keepalive.total_seconds()), 1, 65_535)
        _check_range("receive maximum", self.receive_maximum, 1, 65_535)
        _check_range("send window", self.send_window, 1, MAX_SEND_WINDOW)
        if self.connect_timeout <= timedelta(0):
            raise ConfigurationError(f"MQTT connect timeout {self.connect_timeout}: must be positive")

    @property
    def shown_client_id(self) -> str:
        """The client id for people and logs. Whoever knows a whole one can take its session over."""
        return shown_client_id(self.client_id)

    @classmethod
    def from_url(cls, url: str, *, client_id: str, version: MqttVersion = "5") -> MqttOptions:
        """Options from `mqtt://user:password@host:1883` or `mqtts://…`; change the others with `dataclasses.replace`.

        The errors never repeat the URL, as it may hold a password.
        """
        try:
            parts = split_address(url)
        except ValueError as error:
            raise ConfigurationError(f"MQTT URL: {error}") from None
        if parts.scheme not in MQTT_PORTS:
            raise ConfigurationError(
                f"MQTT URL: scheme {parts.scheme!r} is not known, allowed are mqtt://host:port and mqtts://host:port"
            )
        if not parts.hostname:
            raise ConfigurationError("MQTT URL: no host, write mqtt://host:port")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ConfigurationError("MQTT URL: nothing may follow the host and port")
        return cls(
            client_id=client_id,
            host=parts.hostname,
            port=MQTT_PORTS[parts.scheme] if parts.port is None else parts.port,
            version=version,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=parts.scheme == "mqtts",
        )


def tls_context(options: MqttOptions) -> ssl.SSLContext | None:
    """Return the TLS context for these options; ConfigurationError when a file cannot be used."""
    if not options.tls:
        return None
    for name, file in (("CA", options.ca_file), ("CERT", options.certificate_file), ("KEY", options.key_file)):
        if file is not None:
            _check_readable(f"HOMING_MQTT_{name}_FILE", file)
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.certificate_file is not None:
            context.load_cert_chain(options.certificate_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"HOMING_MQTT_CA_FILE, _CERT_FILE or _KEY_FILE cannot be used: {error}") from error
    return context


def _check_readable(variable: str, file: Path) -> None:
    """ConfigurationError with the name of the file, which the library leaves out."""
    try:
        file.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{variable}: {file} cannot be read: {error.strerror}") from None


def shown_client_id(client_id: str) -> str:
    """Without what follows the last dash, where that is long enough to be a secret."""
    name, dash, secret = client_id.rpartition("-")
    return f"{name}-…" if dash and len(secret) >= SECRET_LENGTH else client_id


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"MQTT {name} {value}: allowed is {least} to {most}")
