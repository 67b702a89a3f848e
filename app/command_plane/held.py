"""Puts together the parts for commands that wait to be sent: for their device, their turn, or a second person."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.command_plane.observed import Observed
from app.command_plane.way_out import CommandSurroundings, WayOut
from app.commands.held.approver import Approver
from app.commands.held.claim_keeper import ClaimKeeper
from app.commands.held.claimant import Claimant
from app.commands.held.command_holder import CommandHolder
from app.commands.held.drainer import Drainer
from app.commands.held.held_judge import HeldJudge
from app.commands.held.lane_resumer import LaneResumer
from app.commands.held.look_pace import LookPace
from app.commands.held.run_standings import RunStandings
from app.commands.held.store_time import StoreTime
from app.commands.send.invoker import CANCELLED
from app.core.commands.command import CommandState
from app.kernel import Kernel
from app.mqtt.base import MqttClient
from app.runtime.services import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldParts:
    """The parts that hold commands, and send them when it is time."""

    holder: CommandHolder
    approver: Approver
    lanes: LaneResumer
    judge: HeldJudge
    claims: ClaimKeeper
    service: Service


def open_held(
    kernel: Kernel,
    observed: Observed,
    way: WayOut,
    *,
    open_commands: OpenCommands,
    waiters: Waiters,
    around: CommandSurroundings,
) -> HeldParts:
    """Put them together. Nothing is sent before the service runs."""
    time = StoreTime(kernel.clock, kernel.store)
    judge = _judge(kernel, way, around, time)
    claims = _claims(kernel, way)
    drainer = _drainer(kernel, observed, way, open_commands, judge, time, claims)
    return HeldParts(
        holder=CommandHolder(
            store=kernel.store,
            registrar=way.registrar,
            admission=way.admission,
            waiters=waiters,
            drainer=drainer,
            expirer=way.expirer,
            all_know=kernel.cluster.all_know,
            observers=observed.observers,
            clock=kernel.clock,
        ),
        approver=Approver(
            store=kernel.store,
            commands=kernel.store,
            open_commands=open_commands,
            drainer=drainer,
            claims=claims,
            node_id=kernel.info.node_id,
            counters=kernel.counters,
        ),
        lanes=LaneResumer(
            store=kernel.store, drainer=drainer, profiles=kernel.languages.profiles, counters=kernel.counters
        ),
        judge=judge,
        claims=claims,
        service=Service(
            "held",
            drainer.run,
            drain=drainer.drained,
            fills=lambda: observed.waiting.fills() | claims.fills(),
            gauges=drainer.gauges.shown,
        ),
    )


def _judge(kernel: Kernel, way: WayOut, around: CommandSurroundings, time: StoreTime) -> HeldJudge:
    return HeldJudge(
        store=kernel.store,
        publisher=way.publisher,
        admission=way.admission,
        may=around.may_send,
        renew=around.renew,
        whereabouts=around.whereabouts,
        run_stands=RunStandings(kernel.store.fleets, kernel.clock).of,
        time=time,
        now_us=kernel.now_us,
    )


def _claims(kernel: Kernel, way: WayOut) -> ClaimKeeper:
    return ClaimKeeper(
        store=kernel.store,
        starts=kernel.store.starts,
        cancel=partial(way.expirer.end, state=CommandState.CANCELLED, error=CANCELLED, only_held=True),
        directory=kernel.cluster,
        node_id=kernel.info.node_id,
        new_secret=kernel.adapters.new_secret,
        lease=kernel.settings.cluster.lease.total_seconds(),
        clock=kernel.clock,
        counters=kernel.counters,
    )


def _drainer(
    kernel: Kernel,
    observed: Observed,
    way: WayOut,
    open_commands: OpenCommands,
    judge: HeldJudge,
    time: StoreTime,
    claims: ClaimKeeper,
) -> Drainer:
    claimant = Claimant(
        store=kernel.store,
        claims=claims,
        publisher=way.publisher,
        open_commands=open_commands,
        expirer=way.expirer,
        serves=lambda: kernel.cluster.listening,
        clock=kernel.clock,
        counters=kernel.counters,
        observers=observed.observers,
    )
    drainer = Drainer(
        store=kernel.store,
        waiting=observed.waiting,
        judge=judge,
        time=time,
        claimant=claimant,
        claims=claims,
        nodes=kernel.cluster.nodes,
        node_id=kernel.info.node_id,
        interval=kernel.interval,
        pace=LookPace(kernel.clock, kernel.settings.command.hold_rate, partial(_taken_window, kernel.mqtt)),
    )
    kernel.device_heard.add(drainer.heard)
    return drainer


def _taken_window(mqtt: MqttClient) -> float:
    """The share of the window of publishes that the broker has to confirm."""
    fill = mqtt.fills().get("publishes")
    return 0.0 if fill is None else fill.size / fill.bound
