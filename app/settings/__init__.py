"""All settings of a node, read once from the environment (prefix HOMING_) and from `.env`.

Each part of the program gets its own sub-object; nobody else reads the environment. `.env.example` lists them all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from app.core.addresses import EventsKind, engine_kind, events_kind
from app.core.durations import format_duration
from app.core.errors import ConfigurationError
from app.core.identifiers import validate_node_id
from app.core.redis_address import REDIS_SCHEMES
from app.settings.access import AccessSettings, OidcSettings
from app.settings.broker import BrokerSettings
from app.settings.events import EventsSettings
from app.settings.fields import (
    HOST,
    Duration,
    Long,
    OptionalFile,
    SettingsGroup,
    Short,
    empty_is_none,
    or_value_error,
    scheme_of,
)
from app.settings.mqtt import MqttSettings
from app.settings.outbound import ReplySettings, WebhooksSettings
from app.settings.store import RedisSettings, StoreSettings
from app.settings.up import UpSettings

__all__ = [
    "PREFIX",
    "AccessSettings",
    "ApiSettings",
    "BrokerSettings",
    "ClusterSettings",
    "CommandSettings",
    "EventsSettings",
    "LatencySettings",
    "LogSettings",
    "Long",
    "MqttSettings",
    "NodeSettings",
    "OidcSettings",
    "OpsSettings",
    "OptionalFile",
    "ProfilesSettings",
    "ReplySettings",
    "Settings",
    "Short",
    "StoreSettings",
    "TimeoutsSettings",
    "TracingSettings",
    "WebhooksSettings",
    "check_names",
    "load_settings",
    "variables",
]

PREFIX = "HOMING_"
_REDIS = ", ".join(f"{one}://" for one in REDIS_SCHEMES)


_OTHERS = re.compile(
    r"HOMING_(KEY|URL|CONTEXT|DATA)|HOMING_TEST_\w+|HOMING_IMAGE(_\w+)?|HOMING_PORT(_\d)?|HOMING_(NODE|FLEET)_PASSWORD"
    r"|HOMING_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)",
    re.ASCII,
)
"""Names that others have: of callers, tests, images and compose, and those that Kubernetes gives to services."""


class NodeSettings(SettingsGroup):
    """This member of the cluster."""

    id: str = ""
    """The name of the node, unique in the cluster. It is generated if empty."""

    @field_validator("id")
    @classmethod
    def _allowed(cls, value: str) -> str:
        return or_value_error(validate_node_id, value) if value else value


class ApiSettings(SettingsGroup):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 stands for all addresses."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    hosts: str = ""
    """The host names that the node serves, separated by commas. If empty, any name, except on a loopback address."""
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The maximum number of connections of callers. A few more are accepted for health checks."""
    max_connections_per_peer: Annotated[int, Field(ge=1, le=1_000_000)] = 6_000
    """The maximum number of connections from one address, such as a load balancer."""
    keep_alive: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=2))] = timedelta(seconds=75)
    """The time for which a connection may stay open without a request."""

    max_streams: Annotated[int, Field(ge=1, le=100_000)] = 500
    """The maximum number of event streams that are open on this node."""
    max_streams_per_principal: Annotated[int, Field(ge=1, le=100_000)] = 10
    """The maximum number of event streams per principal, if callers are authenticated."""

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The names in `hosts`."""
        return tuple(filter(None, (one.strip() for one in self.hosts.split(","))))

    @field_validator("hosts")
    @classmethod
    def _names_only(cls, value: str) -> str:
        for one in filter(None, (part.strip() for part in value.split(","))):
            if one != "*" and not HOST.fullmatch(one):
                raise ValueError(f"{one[:64]!a} is no host name or address; allowed: names without port, or *")
        return value


class OpsSettings(SettingsGroup):
    """A separate port for health and metrics."""

    port: Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(empty_is_none)] = None
    """The port that serves `/healthz`, `/readyz` and `/metrics` without a key. If empty, there is none."""
    host: str = ""
    """The address to listen on. If empty, that of HOMING_API_HOST."""


class CommandSettings(SettingsGroup):
    """Limits and defaults of commands."""

    default_timeout: Long = timedelta(seconds=10)
    """The timeout of a command if its caller gives none; at most `max_timeout`."""
    max_timeout: Long = timedelta(hours=1)
    """The longest timeout that a caller may request."""
    max_pending: Annotated[int, Field(ge=1)] = 20_000
    """The maximum number of open commands with this node as their home node."""
    max_waiters: Annotated[int, Field(ge=1)] = 5_000
    """The maximum number of callers that wait on this node."""
    hold_rate: Annotated[int, Field(ge=1, le=10_000)] = 500
    """The most devices a second that this node looks at for held commands, where many come back together."""
    events: Literal["watched", "always"] = "watched"
    """The times to write command events for streams of all commands: only while such a stream is open, or always."""


class ClusterSettings(SettingsGroup):
    """The membership of nodes in the cluster."""

    lease: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=1))] = timedelta(seconds=5)
    """The time that a node counts as alive after it last renewed its lease."""
    drain_delay: Annotated[Duration, Field(ge=timedelta(), le=timedelta(minutes=1))] = timedelta(seconds=3)
    """The time for which a stopping node keeps serving, so that load balancers notice first."""
    sweep_interval: Short = timedelta(seconds=1)
    """The interval at which a node looks for outcomes whose wake-up was lost and for overdue commands of dead nodes."""


class LogSettings(SettingsGroup):
    """The log that a node writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class ProfilesSettings(SettingsGroup):
    """The device profiles that a node uses."""

    dir: OptionalFile = None
    """A folder of additional profiles (*.toml). If empty, only shipped ones are used."""
    shipped: str = "homing,dji"
    """The shipped profiles to use, separated by commas; `all` stands for every one."""
    values: OptionalFile = None
    """A TOML file with a table for each profile whose `[values]` this deployment sets. Some values are secret."""

    @property
    def shipped_names(self) -> tuple[str, ...]:
        """The names in `shipped`."""
        return tuple(filter(None, (one.strip() for one in self.shipped.split(","))))


class TimeoutsSettings(SettingsGroup):
    """Timeouts that `homing analyze` learned from the latency log."""

    file: OptionalFile = None
    """The timeouts.toml for commands whose caller gives no timeout. It is read at the start. If empty, none is used."""


class LatencySettings(SettingsGroup):
    """The latency log: a record of every command that ended."""

    log_dir: str = ""
    """A folder, or a URL such as `s3://bucket/folder`. If empty, there is no latency log."""
    log_interval: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=10))] = timedelta(minutes=1)
    """The period that one file covers. A crash of the node may lose as much."""
    log_buffer: Annotated[int, Field(ge=1000, le=10_000_000)] = 50_000
    """The maximum number of records that wait in memory. Any more are dropped and counted."""


class TracingSettings(SettingsGroup):
    """Traces in the OpenTelemetry format."""

    endpoint: str = ""
    """The URL of the OTLP collector over HTTP, such as `http://collector:4318`. If empty, there are no traces."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of commands that are traced if their callers do not decide it."""
    service_name: Annotated[str, Field(min_length=1, max_length=255)] = "homing"

    @field_validator("endpoint")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return scheme_of(value, ("http", "https")) if value else value


class Settings(BaseSettings):
    """All settings of a node; `HOMING_STORE_URL` is `store.url`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_file=".env",
        env_file_encoding="utf-8",
        frozen=True,
        extra="forbid",
    )

    profile: str = "homing"
    """The device profile of commands that do not name one."""
    node: NodeSettings = NodeSettings()
    store: StoreSettings = StoreSettings()
    access: AccessSettings = AccessSettings()
    oidc: OidcSettings = OidcSettings()
    audit: Literal["commands", "changes", "off"] = "commands"
    """The scope of the audit log: changes of the access directory, commands as well, or nothing."""
    audit_required: bool = False
    """True to refuse commands while they cannot be recorded."""
    audit_dir: OptionalFile = None
    """The folder where audit lines wait while the database is unavailable. If None, they wait in memory."""
    audit_keep: Annotated[
        Annotated[Duration, Field(ge=timedelta(days=1), le=timedelta(days=36_500))] | None,
        BeforeValidator(empty_is_none),
    ] = None
    """The time for which audit lines are kept; None means for ever."""
    redis: RedisSettings = RedisSettings()
    mqtt: MqttSettings = MqttSettings()
    broker: BrokerSettings = BrokerSettings()
    api: ApiSettings = ApiSettings()
    ops: OpsSettings = OpsSettings()
    command: CommandSettings = CommandSettings()
    cluster: ClusterSettings = ClusterSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    reply: ReplySettings = ReplySettings()
    log: LogSettings = LogSettings()
    events: EventsSettings = EventsSettings()
    latency: LatencySettings = LatencySettings()
    timeouts: TimeoutsSettings = TimeoutsSettings()
    tracing: TracingSettings = TracingSettings()
    webhooks: WebhooksSettings = WebhooksSettings()
    up: UpSettings = UpSettings()

    @model_validator(mode="after")
    def _tokens_need_rules(self) -> Self:
        if self.oidc.issuer and not self.access.url:
            raise ValueError("HOMING_OIDC_ISSUER needs HOMING_ACCESS_URL: there it says what groups may do")
        return self

    @model_validator(mode="after")
    def _required_is_recorded(self) -> Self:
        if self.audit_required and not (self.access.url and self.audit == "commands"):
            raise ValueError(
                "HOMING_AUDIT_REQUIRED=true needs HOMING_ACCESS_URL and HOMING_AUDIT=commands: without them no command "
                "is ever on record"
            )
        return self

    @model_validator(mode="after")
    def _certificates_need_rules(self) -> Self:
        if self.broker.client_ca_file and not self.access.url:
            raise ValueError(
                "HOMING_BROKER_CLIENT_CA_FILE needs HOMING_ACCESS_URL: there it says which devices may come"
            )
        return self

    @model_validator(mode="after")
    def _events_of_one(self) -> Self:
        if self.events.url and engine_kind(self.store.url).shared and not events_kind(self.events.url).shared:
            raise ValueError(
                "HOMING_EVENTS_URL is the log of one node, and HOMING_STORE_URL is of a cluster; "
                f"allowed with a cluster: {_REDIS}"
            )
        return self

    @model_validator(mode="after")
    def _shared_by_nodes(self) -> Self:
        if self.events.intake == "shared" and not (self.events.url and events_kind(self.events.url).shared):
            raise ValueError(
                "HOMING_EVENTS_INTAKE=shared is for the nodes of a cluster, and HOMING_EVENTS_URL is the log of one; "
                f"allowed with it: {_REDIS}"
            )
        return self

    @model_validator(mode="after")
    def _sessions_outlive_nodes(self) -> Self:
        adopted_after = self.cluster.lease + 2 * self.cluster.sweep_interval
        if engine_kind(self.store.url).shared and self.mqtt.session_expiry <= adopted_after:
            raise ValueError(
                "HOMING_MQTT_SESSION_EXPIRY is over before another node adopts the session of a dead one, and the "
                f"responses in it are lost; allowed: more than {format_duration(adopted_after)}, which are "
                "HOMING_CLUSTER_LEASE and twice HOMING_CLUSTER_SWEEP_INTERVAL"
            )
        return self

    @model_validator(mode="after")
    def _cold_needs_a_catalogue(self) -> Self:
        if self.events.cold and (not self.events.url or events_kind(self.events.url) is EventsKind.MEMORY):
            raise ValueError(
                "HOMING_EVENTS_COLD needs a HOMING_EVENTS_URL that outlives the node, as it knows what is there; "
                f"allowed: {_REDIS}, rocks://"
            )
        return self


def variables() -> frozenset[str]:
    """The names of all settings in the environment."""
    parts = {name: getattr(field.annotation, "model_fields", None) for name, field in Settings.model_fields.items()}
    return frozenset(
        (PREFIX + name).upper()
        for part, inner in parts.items()
        for name in ([part] if inner is None else [f"{part}_{one}" for one in inner])
    )


def check_names(names: Iterable[str]) -> None:
    """ConfigurationError when one of these names begins as ours do and is none: a slip would otherwise go unseen."""
    known = variables()
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known and not _OTHERS.fullmatch(name):
            near = get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in sorted(known)], 1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else ".env.example lists all of them"
            raise ConfigurationError(f"{name[:64]} is no setting; {hint}")


def load_settings(kind: type[Settings] = Settings, /, **overrides: Any) -> Settings:
    """Read the settings; ConfigurationError names the variable and what is allowed. `kind` may know more sources."""
    check_names(os.environ)
    try:
        return kind(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        if not said.startswith(PREFIX):  # what is wrong with several says which ones
            variable = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
            said = f"{variable}: {said}"
        raise ConfigurationError(said) from None
    except SettingsError as error:
        raise ConfigurationError(f"settings cannot be read: {error}") from None
