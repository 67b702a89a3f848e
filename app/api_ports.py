"""The ports of the API, which are taken from the planes of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.access.devices import Devices
from app.access.keys import KeyAdministrator
from app.access.people import People
from app.access.plane import AccessPlane
from app.api.ports import CommandPorts, DirectoryRecords, ThisNode
from app.audit.plane import AuditPlane
from app.command_plane.observed import Observed
from app.command_plane.plane import CommandPlane
from app.core.access.keys import make_key
from app.kernel import Kernel
from app.metrics import MetricsExposition, NodeMetrics
from app.node import Node
from app.observers.measures import CommandMeasures
from app.overview import NodeDeaths, Overviews, glance_at
from app.runtime.services import Services
from app.runtime.telemetry import Fill


def this_node(
    kernel: Kernel,
    services: Services,
    node: Node,
    commands: CommandPlane,
    measures: CommandMeasures,
    fills: Callable[[], Mapping[str, Fill]],
) -> ThisNode:
    """Return what the API asks of the node itself: its state, metrics and clocks. `fills` are its buffers."""
    metrics = NodeMetrics(
        node_id=kernel.info.node_id,
        measures=measures,
        open_commands=commands.open_commands,
        waiters=commands.waiters,
        fills=fills,
        gauges=services.gauges,
        counters=kernel.counters,
    )
    return ThisNode(
        member=node,
        nodes=kernel.cluster.nodes,
        fills=fills,
        counters=kernel.counters,
        exposition=MetricsExposition(metrics),
        tracing=kernel.tracing,
        now_us=kernel.now_us,
        clock=kernel.clock,
    )


def overviews_of(
    kernel: Kernel,
    observed: Observed,
    commands: CommandPlane,
    deaths: NodeDeaths,
    node: Node,
    fills: Callable[[], Mapping[str, Fill]],
) -> Overviews:
    """Return what makes the overview. `fills` are the buffers of this node."""
    return Overviews(
        peers=commands.peers,
        explainer=commands.explainer,
        store=kernel.store,
        failures=observed.failures,
        recent=observed.recent,
        open_commands=commands.open_commands,
        deaths=deaths,
        glance=lambda: glance_at(node, fills(), len(commands.open_commands), kernel.clock),
        clock=kernel.clock,
    )


def command_ports(kernel: Kernel, commands: CommandPlane) -> CommandPorts:
    """Return what the API asks of the command plane."""
    return CommandPorts(
        invoker=commands.invoker,
        holder=commands.holder,
        approver=commands.approver,
        lanes=commands.lanes,
        probe_on_request=commands.probes.on_request,
        dry_runner=commands.dry_runner,
        profiles=kernel.languages.profiles,
        default_profile=kernel.settings.profile,
        store=kernel.store,
        open_commands=commands.open_commands,
        waiters=commands.waiters,
        watches=commands.watches,
        stream=commands.stream,
        explainer=commands.explainer,
        if_offline=commands.absence.defaults,
    )


def on_record(kernel: Kernel, access: AccessPlane, audit: AuditPlane) -> DirectoryRecords:
    """Return what the API asks of the access directory and its audit log."""
    administration = access.administration
    return DirectoryRecords(
        devices=Devices(access.authority, administration, kernel.clock, kernel.settings.profile),
        keys=KeyAdministrator(administration, lambda: make_key(kernel.adapters.random_bytes)),
        people=People(administration),
        audit=audit.reader,
    )
