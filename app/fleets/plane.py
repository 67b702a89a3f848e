"""Fleet runs of one node, and schedules that begin them: what it drives and begins, and what callers ask about here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from app.access.ports import Access
from app.audit.recorder import Audit
from app.commands.held.command_holder import CommandHolder
from app.core.payload import JsonValue
from app.fleets.administration import FleetAdministrator, RunRequest
from app.fleets.driver import DriverPorts
from app.fleets.drivers import FleetDrivers
from app.fleets.explanation import RunExplainer
from app.fleets.plan import FleetCommand
from app.fleets.replaced import CommandCanceller, ReplacedCommands
from app.fleets.scheduled_work import ScheduledWork, WorkPorts
from app.fleets.scheduler import Scheduler
from app.fleets.schedules import ScheduleAdministrator
from app.fleets.selection import Recorded, TargetSelection
from app.fleets.target_facts import LastOf, TargetFacts
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlane:
    """The parts that begin, drive and explain fleet runs, and schedules."""

    administration: FleetAdministrator
    schedules: ScheduleAdministrator
    scheduler: Scheduler
    explainer: RunExplainer
    drivers: FleetDrivers
    plane: Plane


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSurroundings:
    """The questions that fleet runs ask of other planes."""

    access: Access
    recorded: Recorded | None
    """The devices on record; None where there are none."""
    online: Callable[[str], Awaitable[bool | None]]
    """Says whether a device is there; None where nobody knows."""
    latest: LastOf
    """Says what came last on a topic."""
    audit: Audit | None
    """The recorder of what schedules begin; None where nothing is recorded."""
    read_run: Callable[[JsonValue], RunRequest]
    """Reads the body of a run."""
    read_command: Callable[[JsonValue], tuple[FleetCommand, timedelta]]
    """Reads a command, and for how long it may wait for its device."""


def open_fleets(
    kernel: Kernel,
    holder: CommandHolder,
    cancel: CommandCanceller,
    around: FleetSurroundings,
) -> FleetPlane:
    """Fleet runs over held commands."""
    store, schedules = kernel.store.fleets, kernel.store.schedules
    replaced = ReplacedCommands(kernel.store, cancel)
    drivers = _drivers(kernel, holder, cancel, replaced, around)
    administration = FleetAdministrator(
        store=store,
        commands=kernel.store,
        holder=holder,
        selection=TargetSelection(
            around.access,
            around.recorded,
            kernel.settings.profile,
            TargetFacts(around.access, around.latest, kernel.now_us),
        ),
        drivers=drivers,
        new_ulid=kernel.adapters.new_ulid,
    )
    work = _work(kernel, holder, replaced, administration, around)
    scheduler = Scheduler(
        store=schedules,
        commands=kernel.store,
        work=work,
        live=kernel.live,
        node_id=kernel.info.node_id,
        interval=kernel.interval,
        counters=kernel.counters,
    )
    return FleetPlane(
        administration=administration,
        schedules=ScheduleAdministrator(store=schedules, commands=kernel.store, work=work),
        scheduler=scheduler,
        explainer=RunExplainer(store, kernel.store),
        drivers=drivers,
        plane=Plane(
            name="fleets",
            services=[
                Service("fleets", drivers.run, close=drivers.close, fills=drivers.fills),
                Service("schedules", scheduler.run),
            ],
        ),
    )


def _drivers(
    kernel: Kernel,
    holder: CommandHolder,
    cancel: CommandCanceller,
    replaced: ReplacedCommands,
    around: FleetSurroundings,
) -> FleetDrivers:
    ports = DriverPorts(
        store=kernel.store.fleets,
        commands=kernel.store,
        children=holder,
        cancel=cancel,
        replaced=replaced,
        online=around.online,
        access=around.access,
        retention=kernel.settings.store.retention,
        clock=kernel.clock,
        counters=kernel.counters,
    )
    return FleetDrivers(
        ports=ports,
        live=kernel.live,
        node_id=kernel.info.node_id,
        secret=kernel.adapters.new_secret(),
        interval=kernel.interval,
    )


def _work(
    kernel: Kernel,
    holder: CommandHolder,
    replaced: ReplacedCommands,
    runs: FleetAdministrator,
    around: FleetSurroundings,
) -> ScheduledWork:
    return ScheduledWork(
        WorkPorts(
            access=around.access,
            runs=runs,
            commands=kernel.store,
            holder=holder,
            audit=around.audit,
            read_run=around.read_run,
            read_command=around.read_command,
            replaced=replaced,
            retention=kernel.settings.store.retention,
            profile=kernel.settings.profile,
        )
    )
