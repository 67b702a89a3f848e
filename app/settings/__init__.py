"""All settings of a node, read once from the environment (prefix HOMING_) and from `.env`.

Each part of the program gets its own sub-object; nobody else reads the environment. `.env.example` lists them all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from app.core.addresses import EventsKind, check_access_url, check_store_url, engine_kind, events_kind, split_address
from app.core.durations import parse_duration
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.events.event import MAX_ENTRIES, MOST_VALUE_BYTES, MOST_VALUES
from app.core.events.plan import NamedDatabase, parse_databases
from app.core.events.quota import Quota, parse_quotas
from app.core.identifiers import validate_node_id
from app.core.topics import share
from app.core.webhooks.destinations import Network, networks
from app.core.webhooks.signatures import LEAST_ROOT_BYTES

PREFIX = "HOMING_"


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


_OTHERS = re.compile(
    r"HOMING_(KEY|URL|CONTEXT)|HOMING_TEST_\w+|HOMING_IMAGE(_\w+)?|HOMING_PORT(_\d)?|HOMING_(NODE|FLEET)_PASSWORD"
    r"|HOMING_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)",
    re.ASCII,
)
"""Names that others have: of callers, tests, images and compose, and those that Kubernetes gives to services."""
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}", re.ASCII)
_Duration = Annotated[timedelta, BeforeValidator(_duration)]
Short = Annotated[_Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(minutes=1))]
Long = Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=30))]
OptionalFile = Annotated[Path | None, BeforeValidator(_empty_is_none)]


def _networks(text: str) -> tuple[Network, ...]:
    return networks([one.strip() for one in text.split(",") if one.strip()])


def _known_networks(text: str) -> str:
    _or_value_error(_networks, text)
    return text


_Networks = Annotated[str, AfterValidator(_known_networks)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeSettings(_Part):
    """This member of the cluster."""

    id: str = ""
    """The name of the node, unique in the cluster. It is generated if empty."""

    @field_validator("id")
    @classmethod
    def _allowed(cls, value: str) -> str:
        return _or_value_error(validate_node_id, value) if value else value


class StoreSettings(_Part):
    """The store of commands and callbacks."""

    url: str = "memory://"
    """The URL of the store: `redis://…` or `rediss://…` for a cluster; for a single node `rocks:///folder`, or
    `memory://`, which forgets everything when the node stops."""
    budget: Short = timedelta(seconds=2)
    """The time limit of one call, retries included, before the caller is told that the store is unavailable."""
    retention: Long = timedelta(hours=1)
    """How long a command stays readable, and its idempotency key valid, after the outcome."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        check_store_url(value)
        return value


class AccessSettings(_Part):
    """The access directory of people, services and their rights."""

    url: str = ""
    """The URL of the directory: `sqlite:///path` or `postgresql://…`. If set, nodes require keys."""
    budget: Short = timedelta(seconds=2)
    """The time limit of one call before the directory counts as unavailable."""
    logins: Annotated[int, Field(ge=1, le=100_000)] = 60
    """The number of login attempts per minute that a node checks from one address."""
    open: bool = False
    """True to serve everybody who can reach the port, also from other machines."""
    refresh: Short = timedelta(milliseconds=500)
    """The interval at which a node looks for changed rules. A revoked key stays valid until they have been read."""
    bootstrap_key: SecretStr = SecretStr("")
    """The API key of the first administrator. A node that finds no administrator at its start records it."""
    bootstrap_key_file: OptionalFile = None
    """A file that contains the key."""
    migrate: bool = False
    """True if a node migrates the tables in PostgreSQL at its start. SQLite tables are always migrated."""
    stale: Long = timedelta(hours=24)
    """How long a node that cannot read the rules keeps sending by the rules that it has."""

    @property
    def directory_url(self) -> str:
        """`url`, or that of `state_file`."""
        return self.url or f"sqlite:///{self.state_file}"

    @property
    def state_file(self) -> Path:
        """The SQLite file in the user's state folder (XDG Base Directory Specification)."""
        state = os.environ.get("XDG_STATE_HOME", "")
        return (Path(state) if state else Path.home() / ".local" / "state") / "homing" / "access.db"

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value:
            check_access_url(value)
        return value

    @model_validator(mode="after")
    def _open_or_not(self) -> Self:
        if self.open and self.url:
            raise ValueError("HOMING_ACCESS_OPEN=true and HOMING_ACCESS_URL contradict each other; one is allowed")
        if self.bootstrap_key.get_secret_value() and self.bootstrap_key_file is not None:
            raise ValueError("HOMING_ACCESS_BOOTSTRAP_KEY and HOMING_ACCESS_BOOTSTRAP_KEY_FILE say it twice")
        return self


class OidcSettings(_Part):
    """Tokens of an OpenID Connect issuer, which callers may use in place of keys."""

    issuer: str = ""
    """The URL of the issuer, exactly as in its tokens. If empty, no tokens are accepted."""
    audience: str = ""
    """The audience that tokens for Homing must have."""
    groups_claim: Annotated[str, Field(min_length=1, max_length=128)] = "groups"
    """The claim that names the groups of a token's subject."""
    tenant_claim: Annotated[str, Field(max_length=128)] = ""
    """The claim that names the tenant of a subject that has no record. If empty, tokens do not name tenants."""

    @field_validator("issuer")
    @classmethod
    def _https(cls, value: str) -> str:
        if value:
            _scheme_of(value, ("https", "http"))
            parts = split_address(value)
            if parts.query or parts.fragment or parts.username is not None or not parts.hostname:
                raise ValueError("is no URL of an issuer; allowed: https://host/path")
            if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise ValueError("scheme 'http' would let others on the way sign tokens; allowed: https://")
        return value

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.issuer) != bool(self.audience):
            raise ValueError("HOMING_OIDC_ISSUER and HOMING_OIDC_AUDIENCE belong together; one of them is empty")
        return self


class MqttSettings(_Part):
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
    keepalive: Annotated[_Duration, Field(ge=timedelta(seconds=5), le=timedelta(hours=1))] = timedelta(seconds=30)
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 256
    """The number of responses that the broker may send before this node has acknowledged them."""
    session_expiry: Annotated[_Duration, Field(ge=timedelta(seconds=30), le=timedelta(days=1))] = timedelta(hours=1)
    """How long the broker keeps this node's session and its messages while the node is disconnected."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return _scheme_of(value, ("mqtt", "mqtts"))

    @field_validator("share_group")
    @classmethod
    def _allowed_group(cls, value: str) -> str:
        _or_value_error(lambda group: share(group, "x"), value)
        return value


class ApiSettings(_Part):
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
    keep_alive: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=2))] = timedelta(seconds=75)
    """How long a connection may stay open without a request."""

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
            if one != "*" and not _HOST.fullmatch(one):
                raise ValueError(f"{one[:64]!a} is no host name or address; allowed: names without port, or *")
        return value


class OpsSettings(_Part):
    """A separate port for health and metrics."""

    port: Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_empty_is_none)] = None
    """The port that serves `/healthz`, `/readyz` and `/metrics` without a key. If empty, there is none."""
    host: str = ""
    """The address to listen on. If empty, that of HOMING_API_HOST."""


class CommandSettings(_Part):
    """Limits and defaults of commands."""

    default_timeout: Long = timedelta(seconds=10)
    """The timeout of a command if its caller gives none."""
    max_timeout: Long = timedelta(hours=1)
    """The longest timeout that a caller may request."""
    max_pending: Annotated[int, Field(ge=1)] = 20_000
    """The maximum number of open commands with this node as their home node."""
    max_waiters: Annotated[int, Field(ge=1)] = 5_000
    """The maximum number of callers that wait on this node."""
    events: Literal["watched", "always"] = "watched"
    """The times to write command events for streams of all commands: only while such a stream is open, or always."""


class ClusterSettings(_Part):
    """The membership of nodes in the cluster."""

    lease: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=1))] = timedelta(seconds=5)
    """How long a node counts as alive after it last renewed its lease."""
    drain_delay: Annotated[_Duration, Field(ge=timedelta(), le=timedelta(minutes=1))] = timedelta(seconds=3)
    """How long a stopping node keeps serving, so that load balancers notice first."""
    sweep_interval: Short = timedelta(seconds=1)
    """The interval at which a node looks for outcomes whose wake-up was lost and for overdue commands of dead nodes."""


class LogSettings(_Part):
    """The log that a node writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class ProfilesSettings(_Part):
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


class TimeoutsSettings(_Part):
    """Timeouts that `homing analyze` learned from the latency log."""

    file: OptionalFile = None
    """The timeouts.toml for commands whose caller gives no timeout. It is read at the start. If empty, none is used."""


class EventsSettings(_Part):
    """The event log of what devices send unasked."""

    url: str = ""
    """The URL of the event log: `redis://…`; for a single node, `rocks:///folder` or `memory://`. None if empty."""
    databases: str = "events=720h,telemetry=24h"
    """The databases with their retentions. The first one has all events that no profile assigns to another."""
    shards: Annotated[int, Field(ge=1, le=256)] = 4
    """The number of shards of a new database. It cannot be changed afterwards."""
    intake: Literal["ordered", "shared"] = "ordered"
    """The way to take events from the broker: one node at a time, in the broker's order (`ordered`), or all nodes, each
    its share (`shared`), which handles more events per second but keeps no order."""
    flush_interval: Annotated[_Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(seconds=1))] = timedelta(
        milliseconds=5
    )
    """How long an event may wait for others to be written with it."""
    max_items: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = 64
    """The maximum number of events that are written together."""
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 1024
    """The number of events that the broker may send before this node has acknowledged them."""
    generation_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = 64 * 1024 * 1024
    """The size at which a generation ends. It ends earlier after a 24th of the retention."""
    quota_bytes: Annotated[int, Field(ge=10_000_000, le=2**50)] = 2 * 1024 * 1024 * 1024
    """The maximum size of all events, counted as they were received."""
    discard: Literal["new", "old"] = "new"
    """The policy at the quota: refuse `new` events, which wait at the broker, or drop `old` generations."""
    values: Annotated[int, Field(ge=1_000, le=100_000_000)] = MOST_VALUES
    """The maximum number of topics with a last value in each database. Events of more topics are in the log only."""
    values_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = MOST_VALUE_BYTES
    """The maximum size of the last values in each database, with their topics. Any more values are in the log only."""
    quotas: str = ""
    """Additional quotas for groups of databases, and what happens when one is reached:
    `telemetry=500000000:old,events+alarms=1000000000:new`."""
    cold: str = ""
    """The folder or URL, such as `s3://bucket/events`, to which sealed generations are moved as Parquet files. If
    empty, there is no cold tier."""
    hot: Annotated[_Duration, Field(ge=timedelta(0), le=timedelta(days=365))] = timedelta(hours=1)
    """How long events stay in the log itself before they move to the cold tier."""

    @property
    def kept(self) -> tuple[NamedDatabase, ...]:
        """The databases in `databases`."""
        return parse_databases(self.databases)

    @property
    def groups(self) -> tuple[Quota, ...]:
        """The quotas in `quotas`."""
        return parse_quotas(self.quotas, [one.name for one in self.kept])

    @model_validator(mode="after")
    def _quotas_of_databases(self) -> Self:
        try:
            parse_quotas(self.quotas, [one.name for one in self.kept])
        except ValueError as error:
            raise ValueError(f"HOMING_EVENTS_QUOTAS: {error}") from None
        return self

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value:
            events_kind(value)
        return value

    @field_validator("databases")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_databases(value)
        return value


class LatencySettings(_Part):
    """The latency log: a record of every command that ended."""

    log_dir: str = ""
    """A folder, or a URL such as `s3://bucket/folder`. If empty, there is no latency log."""
    log_interval: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=10))] = timedelta(minutes=1)
    """The period that one file covers. A crash of the node may lose as much."""
    log_buffer: Annotated[int, Field(ge=1000, le=10_000_000)] = 50_000
    """The maximum number of records that wait in memory. Any more are dropped and counted."""


class ReplySettings(_Part):
    """Handlers of replies: services that profiles name, and that Homing asks what to reply to a device."""

    handlers: OptionalFile = None
    """A TOML file with a table for each handler: its `url` and the `secret` that signs requests to it."""
    budget: Annotated[_Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(seconds=30))] = timedelta(seconds=3)
    """The time limit of a handler. If it takes longer, the device gets no reply."""
    in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """The maximum number of concurrent requests from this node to one handler. Any more get no reply."""
    networks: _Networks = ""
    """The private networks that handlers may be in, in CIDR notation, separated by commas."""
    plain_http: bool = False
    """True to allow http:// handlers. Anybody on the network path can then read and change replies to devices."""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks in `networks`."""
        return _networks(self.networks)


class TracingSettings(_Part):
    """Traces in the OpenTelemetry format."""

    endpoint: str = ""
    """The URL of the OTLP collector over HTTP, such as `http://collector:4318`. If empty, there are no traces."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of commands that are traced if their callers do not decide it."""
    service_name: Annotated[str, Field(min_length=1, max_length=255)] = "homing"

    @field_validator("endpoint")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return _scheme_of(value, ("http", "https")) if value else value


class WebhooksSettings(_Part):
    """Webhooks, which receive outcomes of commands."""

    secret_key: SecretStr = SecretStr("")
    """The key that all webhook secrets are derived from, the same on all nodes. If empty, there are no webhooks."""
    secret_key_file: OptionalFile = None
    """A file that contains the key."""
    networks: _Networks = ""
    """The private networks that webhooks may connect to, in CIDR notation, separated by commas."""
    plain_http: bool = False
    """True to allow http:// webhooks. Anybody on the network path can then read and change what they receive."""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks in `networks`."""
        return _networks(self.networks)

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
        Annotated[_Duration, Field(ge=timedelta(days=1), le=timedelta(days=36_500))] | None,
        BeforeValidator(_empty_is_none),
    ] = None
    """How long audit lines are kept; None means for ever."""
    mqtt: MqttSettings = MqttSettings()
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

    @model_validator(mode="after")
    def _tokens_need_rules(self) -> Self:
        if self.oidc.issuer and not self.access.url:
            raise ValueError("HOMING_OIDC_ISSUER needs HOMING_ACCESS_URL: there it says what groups may do")
        return self

    @model_validator(mode="after")
    def _events_of_one(self) -> Self:
        if self.events.url and engine_kind(self.store.url).shared and not events_kind(self.events.url).shared:
            raise ValueError(
                "HOMING_EVENTS_URL is the log of one node, and HOMING_STORE_URL is of a cluster; "
                "allowed with a cluster: redis://, rediss://"
            )
        return self

    @model_validator(mode="after")
    def _shared_by_nodes(self) -> Self:
        if self.events.intake == "shared" and not (self.events.url and events_kind(self.events.url).shared):
            raise ValueError(
                "HOMING_EVENTS_INTAKE=shared is for the nodes of a cluster, and HOMING_EVENTS_URL is the log of one; "
                "allowed with it: redis://, rediss://"
            )
        return self

    @model_validator(mode="after")
    def _cold_needs_a_catalogue(self) -> Self:
        if self.events.cold and (not self.events.url or events_kind(self.events.url) is EventsKind.MEMORY):
            raise ValueError(
                "HOMING_EVENTS_COLD needs a HOMING_EVENTS_URL that outlives the node, as it knows what is there; "
                "allowed: redis://, rediss://, rocks://"
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


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; ConfigurationError names the variable and what is allowed."""
    check_names(os.environ)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        if not said.startswith(PREFIX):  # what is wrong with several says which ones
            variable = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
            said = f"{variable}: {said}"
        raise ConfigurationError(said) from None
    except SettingsError as error:
        raise ConfigurationError(f"settings cannot be read: {error}") from None


def _scheme_of(url: str, allowed: tuple[str, ...]) -> str:
    scheme = split_address(url).scheme
    if scheme not in allowed:
        raise ValueError(f"scheme {scheme!a} is unknown; allowed: {', '.join(f'{one}://' for one in allowed)}")
    return url


def _or_value_error(check: Callable[[str], object], value: str) -> str:
    try:
        check(value)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None
    return value
