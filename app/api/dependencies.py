"""Values that routes may ask for by FastAPI's dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Protocol, TypeVar

from fastapi import Depends, Request

from app.access.login.logins import Logins
from app.access.origin import ASKING
from app.access.ports import Access, Identity, LimitState
from app.api.credentials import credential_of
from app.api.cursors import Cursors, cursors
from app.api.fleet_body import FleetBodyReader
from app.api.hot import HotRoute
from app.api.http import asking, headers_of
from app.api.overview_streams import OverviewStreams
from app.api.ports import CommandPorts, DirectoryRecords, Ports, ThisNode
from app.api.sse import SseStreams
from app.api.turns import Turns
from app.audit.recorder import Audit
from app.broker.operators import BrokerOperations
from app.broker.plane import needed_broker
from app.core.access.callers import Caller
from app.core.access.rules import EXCHANGE_PLACE, OF_CLUSTER, OF_TENANTS, QUEUE_PLACE, Action
from app.core.commands.command import Command
from app.core.errors import ForbiddenError, InvalidInputError, NoDirectoryError, UnavailableError
from app.core.events.event import Entry
from app.drafts import DraftTrials
from app.events.plane import EventPlane, needed
from app.fleets.administration import RunOwner
from app.traffic import Traffic

_Port = TypeVar("_Port")


class Asker:
    """The caller who sends the request."""

    def __init__(self, access: Access, caller: Caller | None) -> None:
        self._access = access
        self.caller: Final = caller

    def check(self, action: Action) -> None:
        """Return when they may do what is about no device; the errors of `Access.check`."""
        self._access.check(self.caller, action)

    def may(self, action: Action) -> bool:
        """True if they may do what is about no device."""
        try:
            self.check(action)
        except ForbiddenError:
            return False
        return True

    def check_own(self, action: Action) -> None:
        """Return when they may do what is about their own tenant; about Homing itself where they have none."""
        identity = self.identity()
        self._access.check(self.caller, action, tenant_id=None if identity is None else identity.tenant)

    def rights(self) -> list[Action]:
        """Return what they may do that is about no device. While rules are too old to act on, that is less."""
        identity = self.identity()
        own = None if identity is None else identity.tenant
        about = [*((one, own) for one in OF_TENANTS), *((one, None) for one in OF_CLUSTER)]
        return [action for action, tenant in about if self._is_allowed(action, tenant)]

    def _is_allowed(self, action: Action, tenant: str | None) -> bool:
        try:
            self._access.check(self.caller, action, tenant_id=tenant)
        except (ForbiddenError, UnavailableError):
            return False
        return True

    def tenant(self) -> str:
        """The tenant whose queues and exchanges are theirs; "" where nobody is asked, or they are of none."""
        identity = self.identity()
        return "" if identity is None or identity.tenant is None else identity.tenant

    async def check_tenant(self, tenant_id: str) -> None:
        """Return when there is such a tenant; InvalidInputError. Another node may have made it a moment ago."""
        if not self._access.has_tenant(tenant_id):
            await self._access.renew()
            if not self._access.has_tenant(tenant_id):
                raise InvalidInputError("tenant", f"there is no tenant {tenant_id[:64]!a}; name one that is on record")

    def check_queue(self, action: Action, name: str) -> None:
        """Return when they may do this with a queue of their own tenant."""
        self._check_place(action, f"{QUEUE_PLACE}{name}")

    def check_exchange(self, action: Action, name: str) -> None:
        """Return when they may do this with an exchange of their own tenant."""
        self._check_place(action, f"{EXCHANGE_PLACE}{name}")

    def _check_place(self, action: Action, place: str) -> None:
        identity = self.identity()
        self._access.check(self.caller, action, place, tenant_id=None if identity is None else identity.tenant)

    def check_command(self, action: Action, command: Command) -> None:
        """Return when they may do this with the command."""
        self._access.check(self.caller, action, command.device_id, command.profile, command.method)

    def check_second(self, proposer: Caller | None, command: Command) -> None:
        """Return when they may be the second person for a command that somebody else has asked for."""
        self._access.check_second(self.caller, proposer, command.device_id, command.profile, command.method)

    def approver(self) -> tuple[Caller, str]:
        """Return them as they are kept beside an approval, and their name."""
        return self._access.approver(self.caller)

    def run_owner(self) -> RunOwner:
        """Return them as a fleet run or a schedule that they make keeps them."""
        identity = self.identity()
        return RunOwner(
            tenant="" if identity is None else identity.tenant,
            principal="" if identity is None else identity.principal,
            caller=self._access.lasting(self.caller),
        )

    def name_of(self, caller: Caller | None) -> str | None:
        """Return the name of a principal, as far as it is known."""
        return self._access.who(caller)[0]

    def check_method(self, action: Action, device: str, profile: str, method: str) -> None:
        """Return when they may do this with such commands of the device."""
        self._access.check(self.caller, action, device, profile, method)

    def check_topic(self, action: Action, device: str, kind: str = "") -> None:
        """Return when they may do this with events of a device; of no device, where it is empty."""
        self._access.check(self.caller, action, device, *_named(kind))

    def may_read_event(self, entry: Entry) -> bool:
        """True if they may know of the event."""
        return self._access.may_read(self.caller, entry.device, *_named(entry.kind))

    def may_read_some(self, device: str) -> bool:
        """True if there is anything of the device that they may know of. False is certain."""
        return self._access.may_read_some(self.caller, device)

    @property
    def sees_all(self) -> bool:
        """True if nobody is asked who they are, so that nothing is kept from anybody."""
        return self._access.secret is None

    @property
    def cursors(self) -> Cursors:
        """The cursors that give them places in lists."""
        return cursors(self._access.secret)

    def principal(self) -> str | None:
        """The name of the principal; None where nobody is asked."""
        identity = self.identity()
        return None if identity is None else identity.principal

    def identity(self) -> Identity | None:
        """The identity of the caller; None where nobody is asked."""
        return self._access.identity(self.caller)

    def limits(self) -> Sequence[LimitState]:
        """The limits that hold for them, and what is left of each on this node."""
        return self._access.limits(self.caller)

    def may_read(self, command: Command) -> bool:
        """True if they may know of the command."""
        return self.may_know(command.device_id, command.profile, command.method)

    def may_know(self, device: str, profile: str, method: str) -> bool:
        """True if they may know of a command that was such a one."""
        return self._access.may_read(self.caller, device, profile, method)


def _named(kind: str) -> tuple[str, str]:
    profile, _, name = kind.partition(":")
    return profile, name


class Front(Protocol):
    """The application, as its routes know it."""

    ports: Ports
    fleet_bodies: FleetBodyReader
    hot: HotRoute
    lists: Turns
    overviews: OverviewStreams
    streams: SseStreams


async def _ports(request: Request) -> Ports:
    front: Front = request.app
    return front.ports


async def _hot(request: Request) -> HotRoute:
    front: Front = request.app
    return front.hot


async def _fleet_bodies(request: Request) -> FleetBodyReader:
    front: Front = request.app
    return front.fleet_bodies


async def _lists(request: Request) -> Turns:
    front: Front = request.app
    return front.lists


def needed_records(records: DirectoryRecords | None) -> DirectoryRecords:
    """The records; NoDirectoryError where there is no directory."""
    if records is None:
        raise NoDirectoryError(
            "this node has no access directory, and so no record of devices, people or keys: a command may go to any "
            "device, and names its profile; set HOMING_ACCESS_URL to keep them"
        )
    return records


async def _streams(request: Request) -> SseStreams:
    front: Front = request.app
    return front.streams


async def _overviews(request: Request) -> OverviewStreams:
    front: Front = request.app
    return front.overviews


async def asker(request: Request) -> Asker:
    """Return the caller who sends the request; UnauthenticatedError.

    Routers depend on it, so that no route of theirs can forget to.
    """
    front: Front = request.app
    access = front.ports.access
    headers = headers_of(request.scope)
    caller = access.caller(credential_of(headers, access))
    ASKING.set(asking(caller, request.scope, headers))
    return Asker(access, caller)


def _port(of: Callable[[Ports], _Port]) -> Callable[[Request], Awaitable[_Port]]:
    """The dependency that reads one part of the ports."""

    async def port(request: Request) -> _Port:
        front: Front = request.app
        return of(front.ports)

    return port


Node = Annotated[ThisNode, Depends(_port(lambda ports: ports.node))]
"""The node that answers."""
Commands = Annotated[CommandPorts, Depends(_port(lambda ports: ports.commands))]
"""Commands and profiles."""
Recorder = Annotated[Audit | None, Depends(_port(lambda ports: ports.audit))]
"""The recorder of the audit, where there is one."""
LoginsOrNone = Annotated[Logins | None, Depends(_port(lambda ports: ports.logins))]
"""The place where people log in; None where nobody is asked to."""
Events = Annotated[EventPlane, Depends(_port(lambda ports: needed(ports.events)))]
"""The event plane; EventsOffError where there is none."""
EventsOrNone = Annotated[EventPlane | None, Depends(_port(lambda ports: ports.events))]
"""The event plane, where there is one."""
OwnBroker = Annotated[BrokerOperations, Depends(_port(lambda ports: needed_broker(ports.broker).operations))]
"""The operations of the broker in this node; BrokerOffError where there is none."""
BrokerTraffic = Annotated[Traffic, Depends(_port(lambda ports: ports.traffic))]
"""The messages between devices and broker."""
Drafts = Annotated[DraftTrials, Depends(_port(lambda ports: ports.drafts))]
"""Trials of profiles that this node does not speak."""
WhoAsks = Annotated[Asker, Depends(asker)]
"""The sender of the request."""
Records = Annotated[DirectoryRecords, Depends(_port(lambda ports: needed_records(ports.directory)))]
"""The records of the access directory; NoDirectoryError."""
NodePorts = Annotated[Ports, Depends(_ports)]
"""All of them, for routes that tell which there are."""
Hot = Annotated[HotRoute, Depends(_hot)]
"""Serves the busy call."""
FleetBodies = Annotated[FleetBodyReader, Depends(_fleet_bodies)]
"""Reads what is asked for of a fleet run."""
Lists = Annotated[Turns, Depends(_lists)]
"""The turns of those who read lists."""
OpenStreams = Annotated[SseStreams, Depends(_streams)]
"""The streams that are open on this node."""
Overviews = Annotated[OverviewStreams, Depends(_overviews)]
"""The overview, and those who follow it."""
