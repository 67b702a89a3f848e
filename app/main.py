"""The composition root: a kernel, and on it a plane for each subject of a node, in the order of this list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fastapi import FastAPI

from app.access.plane import AccessPlane, open_access
from app.access.ports import Access, Everybody
from app.api.application import Application
from app.api.event_json import event_json
from app.api.fleet_body import FleetBodyReader
from app.api.ports import Ports
from app.api.representation import command_json
from app.api_ports import command_ports, on_record, overviews_of, this_node
from app.audit.plane import AuditPlane, open_audit
from app.broker.plane import open_broker
from app.cluster.adopter import OnNodeDeath
from app.command_plane.observed import event_spans, open_observers
from app.command_plane.plane import CommandPlane, open_commands
from app.command_plane.way_out import CommandSurroundings
from app.commands.held.rights import may_send
from app.core.clock import Clock
from app.drafts import open_drafts
from app.events.known import KnownFromEvents
from app.events.plane import open_event_plane
from app.fleets.plane import FleetPlane, FleetSurroundings, open_fleets
from app.kernel import Adapters, Kernel, open_kernel
from app.membership import open_canary, open_membership
from app.node import Node
from app.overview import NodeDeaths
from app.plane import HasPlane, observers_of, services_of
from app.queues.plane import QueuePlane, open_queues
from app.queues.pusher import QueueParcels
from app.replies.plane import open_replies
from app.runtime.services import Services
from app.runtime.telemetry import Fill
from app.settings import Settings
from app.traffic import open_traffic
from app.webhooks.plane import WebhookPlane, nobody, open_webhooks


class Homing:
    """A node and its HTTP application, which is what starts and stops it.

    `outside` are the queues of this process that are in front of the application. `on_failure` is called with what
    keeps the node from starting, and with the end of a part that must run.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        on_failure: Callable[[BaseException], None],
        outside: Mapping[str, Callable[[], Fill]] | None = None,
    ) -> None:
        kernel = open_kernel(settings, adapters)
        access = open_access(kernel)
        audit = open_audit(kernel, access)
        broker = open_broker(kernel, access, None if audit is None else audit.recorder)
        authority = Everybody() if access is None else access.authority
        webhooks = open_webhooks(kernel, tenant_of=authority.tenant_of, render=command_json)
        events = open_event_plane(kernel, access, event_spans(kernel), lambda: self.node.info)
        queues = open_queues(kernel, events, authority.tenant_of)
        _let_webhooks_take(webhooks, queues, kernel.clock)
        known = KnownFromEvents(events)
        observed = open_observers(kernel, observers_of([audit, webhooks, events]))
        replies = open_replies(kernel, observed.observers, known.last_entry)
        canary = open_canary(kernel)
        commands = open_commands(
            kernel,
            observed,
            canary,
            replies_to=replies.replies_to,
            around=_around_commands(known, webhooks, authority),
        )
        fleets = _fleets(kernel, access, audit, known, commands)
        deaths = NodeDeaths(kernel.now_us)
        membership = open_membership(
            kernel, canary, commands, OnNodeDeath(partial(_tell_gone, known, fleets), deaths.note, known.adopt)
        )
        # As they start; they stop in the opposite order.
        # The broker goes last, as devices and this node itself are connected to it.
        in_order: list[HasPlane | None] = [broker, audit, kernel, observed, commands, replies, membership]
        in_order += [webhooks, access, events, queues, fleets]
        self._services = Services(services_of(in_order), on_failure)
        self._outside = outside or {}
        self.node: Final = Node(membership.parts, self._services)
        ports = Ports(
            node=this_node(kernel, self._services, self.node, commands, observed.measures, self._fills),
            commands=command_ports(kernel, commands),
            access=authority,
            logins=None if access is None else access.logins,
            issuer_logins=None if access is None else access.issuer_logins,
            directory=None if access is None or audit is None else on_record(kernel, access, audit),
            audit=None if audit is None else audit.recorder,
            webhooks=None if webhooks is None else webhooks.administration,
            events=events,
            queues=queues,
            broker=broker,
            fleets=fleets,
            traffic=open_traffic(kernel),
            drafts=open_drafts(kernel),
            overviews=overviews_of(kernel, observed, commands, deaths, self.node, self._fills),
        )
        self.application: Final = Application(ports, settings, self._lifespan)
        kernel.access_changed.add(self.application.recheck)
        self._on_failure = on_failure
        self._drain_delay = settings.cluster.drain_delay

    async def drain(self) -> None:
        """Say that the node is about to stop, and go on serving until everybody knows."""
        await self.node.drain(self._drain_delay)

    def _fills(self) -> dict[str, Fill]:
        own = {"streams": self.application.streams.fill(), "overviews": self.application.overviews.fill()}
        return {**self._services.fills(), **own, **{name: fill() for name, fill in self._outside.items()}}

    @asynccontextmanager
    async def _lifespan(self, _application: FastAPI) -> AsyncIterator[None]:
        try:
            await self.node.start()
            try:
                yield
            finally:
                await self.node.stop()
        except BaseException as error:  # uvicorn only logs it
            self._on_failure(error)
            raise


def _around_commands(known: KnownFromEvents, webhooks: WebhookPlane | None, authority: Access) -> CommandSurroundings:
    return CommandSurroundings(
        told_of=nobody if webhooks is None else webhooks.book.told_of,
        offline_since=known.offline_since,
        whereabouts=known.whereabouts,
        last_event=known.last_event,
        may_send=partial(may_send, authority),
        renew=authority.renew,
        lasting=authority.lasting,
    )


def _let_webhooks_take(webhooks: WebhookPlane | None, queues: QueuePlane | None, clock: Clock) -> None:
    if webhooks is not None and queues is not None:
        webhooks.sources.queues = QueueParcels(queues, event_json, clock)


def _fleets(
    kernel: Kernel, access: AccessPlane | None, audit: AuditPlane | None, known: KnownFromEvents, commands: CommandPlane
) -> FleetPlane:
    bodies = FleetBodyReader(kernel.settings, kernel.now_us)
    return open_fleets(
        kernel,
        commands.holder,
        commands.invoker.cancel,
        FleetSurroundings(
            access=Everybody() if access is None else access.authority,
            recorded=None if access is None else access.authority.devices,
            online=known.online,
            latest=known.latest,
            audit=None if audit is None else audit.recorder,
            read_run=bodies.read,
            read_command=bodies.command,
        ),
    )


def _tell_gone(known: KnownFromEvents, fleets: FleetPlane, node_id: str) -> None:
    known.gone(node_id)
    fleets.drivers.gone(node_id)
