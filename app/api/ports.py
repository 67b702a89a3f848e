"""The ports of a node that the API needs. It is given these, and never the node with all its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from app.access.devices import Devices
from app.access.keys import KeyAdministrator
from app.access.login.logins import Logins
from app.access.people import People
from app.access.ports import Access
from app.audit.reader import AuditReader
from app.audit.recorder import Audit
from app.broker.plane import BrokerPlane
from app.cluster.directory import NodeInfo
from app.commands.deadlines.probe_on_request import ProbeOnRequest
from app.commands.dry_runner import DryRunner
from app.commands.explain.explainer import Explainer
from app.commands.follow.stream import CommandStream
from app.commands.follow.watches import Watches
from app.commands.held.approver import Approver
from app.commands.held.command_holder import CommandHolder
from app.commands.held.lane_resumer import LaneResumer
from app.commands.send.invoker import Invoker
from app.core.clock import Clock
from app.core.commands.command import IfOffline
from app.core.profiles.profile import DeviceProfile
from app.drafts import DraftTrials
from app.events.plane import EventPlane
from app.fleets.plane import FleetPlane
from app.node import Health, NodeState
from app.overview import Overviews
from app.queues.plane import QueuePlane
from app.runtime.telemetry import Counters, Fill
from app.store.command_history import CommandHistory
from app.store.commands import CommandReader
from app.store.holds import HoldStore
from app.traffic import Traffic
from app.webhooks.administration import WebhookAdministrator

if TYPE_CHECKING:
    from app.access.login.issuer_logins import IssuerLogins  # whose libraries are an extra
    from app.runtime.tracing import Tracing  # whose library is an extra


class Member(Protocol):
    """This node, as a member of its cluster."""

    @property
    def info(self) -> NodeInfo:
        """The node's present identity."""

    @property
    def state(self) -> NodeState:
        """The node's present state."""

    async def health(self) -> Health:
        """Return whether the node can serve, and what each part it depends on says."""

    def admit(self) -> None:
        """UnavailableError while it takes no commands."""


class Exposition(Protocol):
    """The metrics of this node."""

    def render(self, accept: str, health: Health) -> tuple[bytes, str]:
        """The text in a format that `accept` names, and its content type."""


class Records(CommandReader, CommandHistory, HoldStore, Protocol):
    """Commands on record, what has happened to them, and which of them are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryRecords:
    """The records of the access directory: devices, keys, people, audit."""

    devices: Devices
    keys: KeyAdministrator
    people: People
    audit: AuditReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisNode:
    """The node that answers, and the others as it knows them."""

    member: Member
    nodes: Callable[[], Awaitable[Sequence[NodeInfo]]]
    """The live nodes of the cluster; StoreUnavailableError."""
    fills: Callable[[], Mapping[str, Fill]]
    """The fill of every bounded buffer of this process."""
    counters: Counters
    exposition: Exposition
    tracing: Tracing | None
    now_us: Callable[[], int]
    """Microseconds since 1970, as this machine believes."""
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPorts:
    """Commands: sending, reading, following and explaining them, and the profiles that they speak."""

    invoker: Invoker
    holder: CommandHolder
    approver: Approver
    lanes: LaneResumer
    probe_on_request: ProbeOnRequest
    """Looks for commands that have timed out."""
    dry_runner: DryRunner
    profiles: Mapping[str, DeviceProfile]
    """The profiles that this node speaks, by name."""
    default_profile: str
    store: Records
    open_commands: Sized
    """The open commands whose home is this node."""
    waiters: Sized
    """Callers that are parked here."""
    watches: Watches
    """Commands that streams on this node follow."""
    stream: CommandStream
    """All commands, for streams that follow them together."""
    explainer: Explainer
    """Says what became of a command."""
    if_offline: Callable[[], Mapping[str, IfOffline]]
    """For each profile, what a command does by default if nobody is subscribed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything that routes may use, by subject; put together in `app/main.py`. A route asks for its own part."""

    node: ThisNode
    commands: CommandPorts
    access: Access
    """The decisions about who may do what."""
    logins: Logins | None
    """The place where people log in; None where nobody is asked to."""
    issuer_logins: IssuerLogins | None
    """None where nobody logs in at an OIDC issuer."""
    directory: DirectoryRecords | None
    """The access directory, as callers may read and change it; None where there is none."""
    audit: Audit | None
    """The recorder of commands; None where nothing is recorded."""
    webhooks: WebhookAdministrator | None
    """None on a node that serves none."""
    events: EventPlane | None
    """None on a node that keeps none."""
    overviews: Overviews
    """Shows the cluster at a glance."""
    broker: BrokerPlane | None
    """None on a node that is no broker."""
    fleets: FleetPlane
    traffic: Traffic
    """Listens to the broker for callers."""
    drafts: DraftTrials
    """Tries profiles that this node does not speak."""
    queues: QueuePlane | None
    """None where there are no events, or where their engine keeps no queues."""
