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
from app.core.webhooks.signing import LEAST_ROOT_BYTES

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
    """Its name, unique in the cluster; generated when empty."""

    @field_validator("id")
    @classmethod
    def _allowed(cls, value: str) -> str:
        return _or_value_error(validate_node_id, value) if value else value


class StoreSettings(_Part):
    """Where callbacks are kept."""

    url: str = "memory://"
    """`memory://` for one node alone, `redis://…` or `rediss://…` for a cluster."""
    budget: Short = timedelta(seconds=2)
    """How long one call may take, retries included, before the caller is told that the store is away."""
    retention: Long = timedelta(hours=1)
    """How long a command stays readable after its outcome, and an idempotency key counts."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        check_store_url(value)
        return value


class AccessSettings(_Part):
    """The directory of people, services and their rights."""

    url: str = ""
    """`sqlite:///path` or `postgresql://…`, and then nodes ask for keys."""
    budget: Short = timedelta(seconds=2)
    """How long one call may take before the directory counts as away."""
    logins: Annotated[int, Field(ge=1, le=100_000)] = 60
    """How many attempts to log in from one address a node looks at in a minute."""
    open: bool = False
    """Let everybody in who reaches the port, also from other machines."""
    refresh: Short = timedelta(milliseconds=500)
    """How often a node looks for changed rules. A revoked key counts that much longer, and a moment to read them."""
    bootstrap_key: SecretStr = SecretStr("")
    """An API key for the first administrator, put on record at the start where there is none."""
    bootstrap_key_file: OptionalFile = None
    """A file that holds it."""
    migrate: bool = False
    """Whether a node brings the tables of a PostgreSQL up to date at its start; those of a SQLite always are."""
    stale: Long = timedelta(hours=24)
    """How long a node that cannot read the rules goes on sending by those that it has."""

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
    """Tokens of an OpenID Connect issuer, besides keys."""

    issuer: str = ""
    """Its URL, as tokens name it; no tokens are accepted when empty."""
    audience: str = ""
    """By what tokens say that they are for Homing."""
    groups_claim: Annotated[str, Field(min_length=1, max_length=128)] = "groups"
    """Where tokens name the groups of their subject."""
    tenant_claim: Annotated[str, Field(max_length=128)] = ""
    """Where tokens name the tenant of a subject that is not on record; they say nothing of tenants when empty."""

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
    """The broker."""

    url: str = "mqtt://127.0.0.1:1883"
    """`mqtt://host:port`, or `mqtts://…` with TLS."""
    version: Literal["5", "3.1.1"] = "5"
    """The protocol version to speak. With 3.1.1 commands that wait at the broker never expire."""
    share_group: str = "homing"
    """What the names of the share group and of the sessions begin with."""
    username: str = ""
    password: SecretStr = SecretStr("")
    ca_file: OptionalFile = None
    """The authorities to trust, PEM; the system's when empty."""
    cert_file: OptionalFile = None
    """This node's certificate, PEM, where the broker asks for one."""
    key_file: OptionalFile = None
    keepalive: Annotated[_Duration, Field(ge=timedelta(seconds=5), le=timedelta(hours=1))] = timedelta(seconds=30)
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 256
    """How many responses the broker may send ahead of our acknowledgements."""
    session_expiry: Annotated[_Duration, Field(ge=timedelta(seconds=30), le=timedelta(days=1))] = timedelta(hours=1)
    """How long the broker keeps our session, and what arrives for it, while we are away."""

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
    """The HTTP side."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    hosts: str = ""
    """Names under which callers reach the node, separated by commas; any name when empty, but on a loopback address."""
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """How many connections callers may have; a few more for questions after the node's health."""
    max_connections_per_peer: Annotated[int, Field(ge=1, le=1_000_000)] = 6_000
    """How many of them one address may have, as a load balancer does."""
    keep_alive: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=2))] = timedelta(seconds=75)
    """How long a connection may be without a request."""

    max_streams: Annotated[int, Field(ge=1, le=100_000)] = 500
    """How many streams of events callers may have open on this node."""
    max_streams_per_principal: Annotated[int, Field(ge=1, le=100_000)] = 10
    """How many of them one principal may have, where callers are known."""

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
    """Health and metrics on a port of their own."""

    port: Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_empty_is_none)] = None
    """`/healthz`, `/readyz` and `/metrics` for everybody who reaches it; there is none when empty."""
    host: str = ""
    """The address to listen on; that of HOMING_API_HOST when empty."""


class CommandSettings(_Part):
    """Limits and defaults of commands."""

    default_timeout: Long = timedelta(seconds=10)
    """The timeout of a command whose caller gives none."""
    max_timeout: Long = timedelta(hours=1)
    """The longest timeout that a caller may ask for."""
    max_pending: Annotated[int, Field(ge=1)] = 20_000
    """How many commands may be open with this node as their home."""
    max_waiters: Annotated[int, Field(ge=1)] = 5_000
    """How many callers may be parked on this node."""
    events: Literal["watched", "always"] = "watched"
    """When what happens to commands is written for streams of all of them: while there are some, or always."""


class ClusterSettings(_Part):
    """How nodes know of each other."""

    lease: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=1))] = timedelta(seconds=5)
    """How long a node counts as alive after its last sign of life."""
    drain_delay: Annotated[_Duration, Field(ge=timedelta(), le=timedelta(minutes=1))] = timedelta(seconds=3)
    """How long a node that was told to stop goes on serving, so that load balancers notice first."""
    sweep_interval: Short = timedelta(seconds=1)
    """How often a node looks for outcomes whose wake-up was lost, and for overdue commands of dead nodes."""


class LogSettings(_Part):
    """What a node writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class ProfilesSettings(_Part):
    """Device profiles besides the shipped ones."""

    dir: OptionalFile = None
    """A folder of further profiles (*.toml); only the shipped ones when empty."""
    shipped: str = "homing,dji"
    """Which of the shipped profiles are spoken, with commas between; `all` for every one."""
    values: OptionalFile = None
    """A TOML file with a table for each profile whose `[values]` this deployment sets; some of them are secret."""

    @property
    def shipped_names(self) -> tuple[str, ...]:
        """The names in `shipped`."""
        return tuple(filter(None, (one.strip() for one in self.shipped.split(","))))


class TimeoutsSettings(_Part):
    """Timeouts that `homing analyze` learned from the latency log."""

    file: OptionalFile = None
    """Its timeouts.toml, for commands whose caller gives no timeout; read at the start. None when empty."""


class EventsSettings(_Part):
    """The event log: what devices say without being asked."""

    url: str = ""
    """Where it is kept: `redis://…`, for one node also `rocks:///folder` or `memory://`; nowhere when empty."""
    databases: str = "events=720h,telemetry=24h"
    """Its databases with their retentions; the first one has what no profile puts elsewhere."""
    shards: Annotated[int, Field(ge=1, le=256)] = 4
    """How many parts a database has when it is made. It cannot be changed afterwards."""
    intake: Literal["ordered", "shared"] = "ordered"
    """Who brings events in: one node at a time, in the broker's order (`ordered`), or all of them, each its share
    (`shared`): more per second, and no order."""
    flush_interval: Annotated[_Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(seconds=1))] = timedelta(
        milliseconds=5
    )
    """How long an event may wait for others that are written with it."""
    max_items: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = 64
    """How many events are written together at most."""
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 1024
    """How many events the broker may send ahead of our acknowledgements."""
    generation_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = 64 * 1024 * 1024
    """At which size a generation ends; it ends sooner after a 24th of the retention."""
    quota_bytes: Annotated[int, Field(ge=10_000_000, le=2**50)] = 2 * 1024 * 1024 * 1024
    """How much all events may take, as they were said."""
    discard: Literal["new", "old"] = "new"
    """What happens then: `new` events are refused and wait at the broker, or the `old` generations go."""
    values: Annotated[int, Field(ge=1_000, le=100_000_000)] = MOST_VALUES
    """How many topics of each database have a last value; those of more topics are in the log only."""
    values_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = MOST_VALUE_BYTES
    """How many bytes the last values of each database take, with their topics; what has no room is in the log only."""
    quotas: str = ""
    """How much groups of databases may take besides, each with what happens then:
    `telemetry=500000000:old,events+alarms=1000000000:new`."""
    cold: str = ""
    """Where sealed generations go as Parquet files: a folder, or a URL such as `s3://bucket/events`; nowhere when
    empty."""
    hot: Annotated[_Duration, Field(ge=timedelta(0), le=timedelta(days=365))] = timedelta(hours=1)
    """How long events stay in the log itself before that."""

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
    """A folder, or a URL such as `s3://bucket/folder`; no log when empty."""
    log_interval: Annotated[_Duration, Field(ge=timedelta(seconds=1), le=timedelta(minutes=10))] = timedelta(minutes=1)
    """How long records are gathered into one file: what a crash of the node may lose."""
    log_buffer: Annotated[int, Field(ge=1000, le=10_000_000)] = 50_000
    """How many records may wait in memory; more are dropped and counted."""


class ReplySettings(_Part):
    """Handlers of replies to devices: services that profiles name, and that are asked what to tell a device."""

    handlers: OptionalFile = None
    """A TOML file with a table for each handler: its `url` and the `secret` that questions are signed by."""
    budget: Annotated[_Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(seconds=30))] = timedelta(seconds=3)
    """How long a handler may take; then the device gets no reply."""
    in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """How many questions to one handler may be under way on this node; more get no reply."""
    networks: _Networks = ""
    """Private networks that handlers may be in, in CIDR notation with commas between."""
    plain_http: bool = False
    """Whether a handler may be http://, where anybody on the way reads and changes what devices are told."""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks in `networks`."""
        return _networks(self.networks)


class TracingSettings(_Part):
    """Traces, for OpenTelemetry."""

    endpoint: str = ""
    """The collector, OTLP over HTTP: `http://collector:4318`; no traces when empty."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Which share of the commands is traced whose callers decided nothing."""
    service_name: Annotated[str, Field(min_length=1, max_length=255)] = "homing"

    @field_validator("endpoint")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return _scheme_of(value, ("http", "https")) if value else value


class WebhooksSettings(_Part):
    """Who is told of outcomes."""

    secret_key: SecretStr = SecretStr("")
    """What the secrets of all webhooks are derived from, the same on all nodes; no webhooks when empty."""
    secret_key_file: OptionalFile = None
    """A file that holds it."""
    networks: _Networks = ""
    """Private networks that webhooks may connect to, in CIDR notation with commas between."""
    plain_http: bool = False
    """Whether a webhook may be http://, where anybody on the way reads and changes what it is told."""

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
    """Everything; `HOMING_STORE_URL` is `store.url`."""

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
    """The device profile of commands that name none."""
    node: NodeSettings = NodeSettings()
    store: StoreSettings = StoreSettings()
    access: AccessSettings = AccessSettings()
    oidc: OidcSettings = OidcSettings()
    audit: Literal["commands", "changes", "off"] = "commands"
    """With an access directory, what is put on record in it: changes of it, and also commands."""
    audit_required: bool = False
    """Refuse commands while they cannot be put on record."""
    audit_dir: OptionalFile = None
    """Where lines wait while their database is away, of this node and of those that are gone; in memory when None."""
    audit_keep: Annotated[
        Annotated[_Duration, Field(ge=timedelta(days=1), le=timedelta(days=36_500))] | None,
        BeforeValidator(_empty_is_none),
    ] = None
    """How long lines are kept; None: for ever."""
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
