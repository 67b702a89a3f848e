"""Fleet runs of one node: those that it drives, and those that callers ask about here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.access.ports import Access
from app.commands.held.command_holder import CommandHolder
from app.fleets.administration import FleetAdministrator
from app.fleets.driver import DriverPorts
from app.fleets.drivers import FleetDrivers
from app.fleets.explanation import RunExplainer
from app.fleets.selection import Recorded, TargetSelection
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service
from app.store.commands import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlane:
    """The parts that begin, drive and explain fleet runs."""

    administration: FleetAdministrator
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


def open_fleets(
    kernel: Kernel,
    holder: CommandHolder,
    cancel: Callable[[str], Awaitable[Finished]],
    around: FleetSurroundings,
) -> FleetPlane:
    """Fleet runs over held commands."""
    store = kernel.store.fleets
    driving = DriverPorts(
        store=store,
        commands=kernel.store,
        children=holder,
        cancel=cancel,
        online=around.online,
        access=around.access,
        retention=kernel.settings.store.retention,
        clock=kernel.clock,
        counters=kernel.counters,
    )

    async def live() -> Sequence[str]:
        return [one.node_id for one in await kernel.cluster.nodes()]

    drivers = FleetDrivers(
        ports=driving,
        live=live,
        node_id=kernel.info.node_id,
        secret=kernel.adapters.new_secret(),
        interval=kernel.interval,
    )
    administration = FleetAdministrator(
        store=store,
        commands=kernel.store,
        holder=holder,
        selection=TargetSelection(around.access, around.recorded, kernel.settings.profile),
        drivers=drivers,
        new_ulid=kernel.adapters.new_ulid,
    )
    return FleetPlane(
        administration=administration,
        explainer=RunExplainer(store, kernel.store),
        drivers=drivers,
        plane=Plane(
            name="fleets",
            services=[Service("fleets", drivers.run, close=drivers.close, fills=drivers.fills)],
        ),
    )
