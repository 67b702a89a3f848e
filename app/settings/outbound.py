"""The settings of requests that a node sends: webhooks and reply handlers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from app.core.webhooks.destinations import Network
from app.core.webhooks.signatures import LEAST_ROOT_BYTES
from app.settings.fields import Duration, Networks, OptionalFile, SettingsGroup, read_networks


class ReplySettings(SettingsGroup):
    """Handlers of replies: services that profiles name, and that Homing asks what to reply to a device."""

    handlers: OptionalFile = None
    """A TOML file with a table for each handler: its `url` and the `secret` that signs requests to it."""
    budget: Annotated[Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(seconds=30))] = timedelta(seconds=3)
    """The time limit of a handler. If it takes longer, the device gets no reply."""
    in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """The maximum number of concurrent requests from this node to one handler. Any more get no reply."""
    networks: Networks = ""
    """The private networks that handlers may be in, in CIDR notation, separated by commas."""
    plain_http: bool = False
    """True to allow http:// handlers. Anybody on the network path can then read and change replies to devices."""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks in `networks`."""
        return read_networks(self.networks)


class WebhooksSettings(SettingsGroup):
    """Webhooks, which receive outcomes of commands."""

    secret_key: SecretStr = SecretStr("")
    """The key that all webhook secrets are derived from, the same on all nodes. If empty, there are no webhooks."""
    secret_key_file: OptionalFile = None
    """A file that contains the key."""
    networks: Networks = ""
    """The private networks that webhooks may connect to, in CIDR notation, separated by commas."""
    plain_http: bool = False
    """True to allow http:// webhooks. Anybody on the network path can then read and change what they receive."""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks in `networks`."""
        return read_networks(self.networks)

    @field_validator("secret_key")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        if 0 < len(value.get_secret_value()) < LEAST_ROOT_BYTES:
            raise ValueError(f"is shorter than {LEAST_ROOT_BYTES} characters; openssl rand -base64 32 makes one")
        return value

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.secret_key.get_secret_value() and self.secret_key_file is not None:
            raise ValueError("HOMING_WEBHOOKS_SECRET_KEY and HOMING_WEBHOOKS_SECRET_KEY_FILE say it twice")
        return self
