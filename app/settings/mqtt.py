"""The settings of the connection to the MQTT broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from app.core.addresses import split_address
from app.core.topics import share
from app.settings.fields import Duration, OptionalFile, SettingsGroup, or_value_error, scheme_of


class MqttSettings(SettingsGroup):
    """The connection to the MQTT broker."""

    url: str = "mqtt://127.0.0.1:1883"
    """The URL of the broker: `mqtt://host:port`, or `mqtts://…` with TLS."""
    version: Literal["5", "3.1.1"] = "5"
    """The MQTT version to use. With 3.1.1, commands that wait at the broker never expire."""
    share_group: str = "homing"
    """The prefix of the share group's name and of the sessions' names."""
    username: str = ""
    password: SecretStr = SecretStr("")
    ca_file: OptionalFile = None
    """A PEM file of the authorities to trust. If empty, the system's are used."""
    cert_file: OptionalFile = None
    """A PEM file with this node's certificate, if the broker requires one."""
    key_file: OptionalFile = None
    keepalive: Annotated[Duration, Field(ge=timedelta(seconds=5), le=timedelta(hours=1))] = timedelta(seconds=30)
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 256
    """The number of responses that the broker may send before this node has acknowledged them."""
    session_expiry: Annotated[Duration, Field(ge=timedelta(seconds=30), le=timedelta(days=1))] = timedelta(hours=1)
    """The time for which the broker keeps this node's session and its messages while the node is disconnected."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return scheme_of(value, ("mqtt", "mqtts"))

    @field_validator("share_group")
    @classmethod
    def _allowed_group(cls, value: str) -> str:
        or_value_error(lambda group: share(group, "x"), value)
        return value

    @model_validator(mode="after")
    def _files_for_tls(self) -> Self:
        if (self.ca_file or self.cert_file or self.key_file) and split_address(self.url).scheme != "mqtts":
            raise ValueError(
                "HOMING_MQTT_CA_FILE, HOMING_MQTT_CERT_FILE and HOMING_MQTT_KEY_FILE need a HOMING_MQTT_URL with TLS, "
                "such as mqtts://broker:8883"
            )
        if self.key_file and not self.cert_file:
            raise ValueError("HOMING_MQTT_KEY_FILE needs HOMING_MQTT_CERT_FILE: a key alone shows nobody anything")
        return self
