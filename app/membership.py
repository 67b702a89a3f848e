"""The membership of a node, put together on its kernel: its place in the cluster, and its work for dead nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.cluster.adopter import Adopter, OnNodeDeath
from app.cluster.canary import CALM_SECONDS, EVERY_SECONDS, Canary
from app.cluster.directory import NodeInfo
from app.cluster.founder import Founder
from app.cluster.stepdown import StepDown
from app.command_plane.plane import CommandPlane
from app.commands.deadlines.left import CommandRecovery
from app.core.topics import canary_topics
from app.kernel import Kernel
from app.node import MemberParts
from app.plane import Plane
from app.runtime.services import Service
from app.store.engine import kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlane:
    """The parts that make a process a member of the cluster, and those of them that run."""

    parts: MemberParts
    plane: Plane


def open_membership(kernel: Kernel, canary: Canary, commands: CommandPlane, on_death: OnNodeDeath) -> MemberPlane:
    """Nothing is connected yet. `on_death` takes over what other planes of a dead node had."""
    adopter = _adopter(kernel, commands, on_death)
    canary.strained_by(lambda: adopter.busy)
    kernel.notices.add(adopter.heard)
    parts = MemberParts(
        info=kernel.info,
        sessions=kernel.sessions,
        founder=_founder(kernel),
        wake_key=kernel.adapters.wake_key,
        store=kernel.store,
        cluster=kernel.cluster,
        mqtt=kernel.mqtt,
        inbox=commands.inbox,
        adopter=adopter,
        canary=canary,
        left=CommandRecovery(
            store=kernel.store,
            open_commands=commands.open_commands,
            expirer=commands.expirer,
            repeater=commands.repeater,
            prober=commands.probes.prober,
            node_id=kernel.info.node_id,
        ),
    )
    services = [Service("adopter", adopter.run), Service("canary", canary.run), *_stepping_down(kernel)]
    return MemberPlane(parts=parts, plane=Plane(name="membership", services=services))


def open_canary(kernel: Kernel) -> Canary:
    """The canary of this node, which commands ask as well; nothing is sent yet."""
    canary = Canary(
        mqtt=kernel.mqtt,
        cluster=kernel.cluster,
        node_id=kernel.info.node_id,
        topics=canary_topics(kernel.languages.filters),
        strained=lambda: kernel.cluster.strained,
        new_secret=kernel.adapters.new_secret,
        clock=kernel.clock,
        counters=kernel.counters,
        every_seconds=CALM_SECONDS if kernel.settings.broker.listens else EVERY_SECONDS,
    )
    kernel.channel.resubscribed.add(canary.forget)
    kernel.channel.carried.add(canary.returned)
    kernel.own_topics.update(dict.fromkeys(canary.topics, canary.arrived))
    return canary


def _adopter(kernel: Kernel, commands: CommandPlane, on_death: OnNodeDeath) -> Adopter:
    cluster = kernel.cluster

    async def drain(orphan: NodeInfo, idle: timedelta) -> int:
        found = await commands.inbox.empty(kernel.adapters.open_drain(orphan.client_id), orphan.filters, idle)
        await cluster.nodes()  # so that `leased` is of now
        if orphan.node_id not in (cluster.leased or ()):  # else it lives again, and looks after its commands itself
            await commands.repeater.take_over(orphan.node_id)
            await commands.probes.prober.take_over(orphan.node_id)
        return found + await on_death.adopt(orphan.client_id, orphan.filters, idle)

    return Adopter(
        cluster=cluster,
        drain=drain,
        interval=kernel.interval,
        counters=kernel.counters,
        connected=lambda: kernel.mqtt.connected,
        named=kernel.sessions.named,
        gone=on_death.gone,
        died=on_death.died,
    )


def _stepping_down(kernel: Kernel) -> Sequence[Service]:
    """Only where nodes share a store: one alone has nobody who could take over."""
    if not kind_of(kernel.settings.store.url).shared:
        return []
    step_down = StepDown(
        store=kernel.store,
        connected=lambda: kernel.mqtt.connected,
        say=kernel.sessions.say,
        cut=kernel.mqtt.cut,
        clock=kernel.clock,
        counters=kernel.counters,
    )
    kernel.notices.add(step_down.heard)
    return [Service("stepdown", step_down.run)]


def _founder(kernel: Kernel) -> Founder:
    asker = kernel.adapters.open_roll_call
    roll_call = None if asker is None else asker(f"{kernel.info.client_id}-asks")
    return Founder(cluster=kernel.cluster, roll_call=roll_call, counters=kernel.counters)
