"""Mistakes planted into the product, or into its model where it has one, to see that seeds find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from homing_rig.simulation.plan import Plan, Trouble, TroubleKind
from tests.rig.chaos import event_mutants as rig_events
from tests.rig.chaos import held_mutants as rig_held
from tests.rig.chaos import mutants as of_chaos
from tests.rig.planting import product_class, taken_back
from tests.rig.simulation import event_mutants as of_events
from tests.rig.simulation import held_mutants as of_held
from tests.rig.simulation import rare_mutants as rare


def adoption_throws_away() -> None:
    """The messages of a dead node's session are acknowledged and forgotten."""
    session = product_class("homing_rig.simulation.mqtt.SimSessionDrain")
    drain = session.drain

    async def in_vain(self: Any, filters: Any, _handler: Any, idle: timedelta) -> Any:
        return await drain(self, filters, lambda delivery: delivery.acknowledge(), idle)

    session.drain = in_vain


def outcome_overwritten() -> None:
    """A response that comes after the outcome replaces it."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")

    def annex(self: Any, record: Any, answer: Any, _now: int) -> Any:
        self._settle(record, answer.state, answer.result, answer.error, "", received_by="n1")
        return MatchResult.WON

    writer._annex = annex


def oldest_waiter_wins() -> None:
    """A response answers the command that has waited longest on its topic, whatever id it carries."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")
    named_by = writer._named_by

    def oldest(self: Any, answer: Any, now: int) -> Any:
        waiting = self._table.indexes.topics.get(answer.topic)
        return next(iter(waiting)) if waiting else named_by(self, answer, now)

    writer._named_by = oldest


def silence_ends_a_session() -> None:
    """A session of which nothing came for a second is ended: what the network held back is lost (found so)."""

    async def quiet(self: Any, idle: float) -> None:
        seen = -1
        while seen != self.deliveries or self.unacknowledged:
            seen = self.deliveries
            await asyncio.wait([self.ended], timeout=idle)
            if self.ended.done():
                raise ConnectionError("the connection has ended")

    product_class("homing_rig.simulation.mqtt_link.SimLink").quiet = quiet


def stalled_as_it_stops(plan: Plan) -> Plan:
    """A node stops as its network stalls, and is given one message at a time.

    Of the first 14,967 plans 292 have something like that, and none of them finds the mistake.
    """
    troubles = Trouble(1.0, TroubleKind.RESTART, "n1", 1.0), Trouble(1.0, TroubleKind.STALL_BROKER, "n1", 0.9)
    return replace(plan, receive_maximum=1, troubles=troubles)


def cancel_wins() -> None:
    """A cancellation replaces the outcome that a command has."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")
    finish = writer.finish

    async def over(self: Any, command_id: str, state: Any, *finished: Any, **how: Any) -> Any:
        record = self._table.records.get(command_id)
        if record is not None and state is CommandState.CANCELLED:
            record.command = replace(record.command, state=CommandState.PENDING, finished_at=None, result=None)
        return await finish(self, command_id, state, *finished, **how)

    writer.finish = over


def index_outlives_its_record() -> None:
    """The index that leads to a command is there for ever."""
    product_class("app.store.memory.commands.records.Indexes").forget = lambda _self, _registration: None


def drops_when_full() -> None:
    """A node that has three responses under way acknowledges and drops the others."""
    inbox = product_class("app.mqtt.inbox.Inbox")
    handle = inbox.handle

    def drop(self: Any, delivery: Any) -> None:
        if len(self._arrived) > 3:
            delivery.acknowledge()
        else:
            handle(self, delivery)

    inbox.handle = drop


def redelivered_is_dropped() -> None:
    """A message that the broker delivers again is taken for a repetition, and acknowledged."""
    inbox = product_class("app.mqtt.inbox.Inbox")
    handle = inbox.handle

    def once(self: Any, delivery: Any) -> None:
        if delivery.message.redelivered:
            delivery.acknowledge()
        else:
            handle(self, delivery)

    inbox.handle = once


def open_commands_leak() -> None:
    """A command that was never registered keeps its place."""
    product_class("app.callbacks.open_commands.OpenCommands").discard = lambda _self, _command_id: None


def late_answers_are_dropped() -> None:
    """An answer after the deadline is acknowledged and nowhere."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")
    writer._annex = lambda _self, _record, _answer, _now: MatchResult.DUPLICATE


def commands_never_expire() -> None:
    """The broker may hand a command to a device whenever it comes back."""
    publisher = product_class("app.commands.send.publisher.Publisher")
    publish = publisher.publish

    def lasting(self: Any, command: Any, **how: Any) -> Any:
        mqtt = self._mqtt
        self._mqtt = _Lasting(mqtt)
        try:
            return publish(self, command, **how)
        finally:
            self._mqtt = mqtt

    publisher.publish = lasting


class _Lasting:
    def __init__(self, mqtt: Any) -> None:
        self._mqtt = mqtt

    def publish(self, publication: Any) -> Any:
        return self._mqtt.publish(replace(publication, message_expiry=None))


def claims_are_shared() -> None:
    """The lease of a node that lives is taken away by whoever wants to adopt its session."""
    keys = product_class("homing_rig.simulation.redis.RedisModel")
    claim = keys._claim

    def always(self: Any, lease: str, *arguments: Any) -> Any:
        *names, _lost, session_ms = arguments
        return claim(self, lease, *names, "1", session_ms)

    keys._claim = always
    product_class("app.cluster.redis.RedisCluster").orphans = product_class("app.cluster.redis.RedisCluster").nodes


def stale_wake_up() -> None:
    """A caller is handed the outcome that was recorded before its own."""
    waiters = product_class("app.callbacks.waiters.Waiters")
    wake = waiters.wake
    before: list[Any] = []

    def stale(self: Any, outcome: Any, pending: Any) -> Any:
        before.append(outcome)
        told = replace(before.pop(0), command_id=outcome.command_id) if len(before) > 1 else outcome
        return wake(self, told, pending)

    waiters.wake = stale


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rules`: what it breaks, one of which is found by a seed below `within`, with so many commands.

    `known` is a seed that has found it, which is tried first: so each run of the tests takes a seed or two. `changed`
    makes of a plan one that meets the mistake, where seeds draw that too seldom.
    """

    plant: Callable[[], None]
    rules: tuple[str, ...]
    known: int = 0
    within: int = 10
    commands: int = 60
    changed: Callable[[Plan], Plan] = lambda plan: plan


OF_THE_RIG: Final = (
    Mutant(adoption_throws_away, ("I4",), 2),
    Mutant(drops_when_full, ("I4",), 2),
    Mutant(rig_events.events_acknowledged_at_once, ("E1",), 1),
    Mutant(rig_events.events_given_up, ("E1",), 21, within=60),
    Mutant(rig_events.events_out_of_line, ("E2",), 11, within=60),
    Mutant(of_events.events_without_a_fence, ("E4",), 131, within=200),
    Mutant(of_chaos.idempotency_ignored, ("I7",), 2, within=20),
    Mutant(of_chaos.no_adoption, ("I4", "L1"), 2, within=20),
    Mutant(of_chaos.no_fencing, ("L1", "I4"), 2, within=100),
    Mutant(of_chaos.old_session_left_behind, ("I4", "L1"), 1259, within=1300),
    Mutant(oldest_waiter_wins, ("I3",)),
    Mutant(outcome_overwritten, ("I2", "I3", "I5")),
    Mutant(of_chaos.puback_before_store, ("I4",), 3, within=60),
    Mutant(rig_held.sends_what_another_has_claimed, ("F5", "I7"), 205, within=250),
    Mutant(of_chaos.stops_without_handing_over, ("I4", "L1"), 12, within=100),
    Mutant(of_chaos.sweep_off, ("I1", "L1"), 9, within=100),
    Mutant(of_chaos.wake_ups_lost_and_no_resync, ("L2",)),
    Mutant(of_chaos.webhooks_try_once, ("I6",), 3),
)
"""The rig has these as well, some of them for parts of which the simulation has a model."""

OF_ITS_OWN: Final = (
    Mutant(rare.adoption_is_noted_too_early, ("I4", "L1"), 73, within=150),
    Mutant(cancel_wins, ("I2", "I4", "I5"), 10, within=30),
    Mutant(claims_are_shared, ("L1", "I4")),
    Mutant(commands_never_expire, ("F5",), 18, within=100),
    Mutant(rare.deadlines_go_by_the_wall_clock, ("L3",), 13, within=60),
    Mutant(rare.deliveries_die_with_their_node, ("L1", "I6"), 73, within=150),
    Mutant(rare.forgotten_commands_keep_their_places, ("L1",), 9, within=60),
    Mutant(of_events.cursors_run_ahead, ("E3",), 46, within=100),
    Mutant(of_events.events_of_the_dead_are_left, ("L1",), 31, within=60),
    Mutant(of_events.publications_without_a_name, ("E1",), 276, within=400),
    Mutant(of_held.held_by_the_dead_waits_on, ("H1",), 5, within=60),
    Mutant(index_outlives_its_record, ("I8",)),
    Mutant(rare.forgotten_sessions_stay_forgotten, ("L1", "I4"), 309, within=400),
    Mutant(rare.key_ends_with_the_outcome, ("I7",), 3, within=20),
    Mutant(late_answers_are_dropped, ("I4",)),
    Mutant(rare.lease_without_a_session, ("L1",), 4, within=60),
    Mutant(rare.missed_ends_are_forgotten, ("L1",), 9, within=60),
    Mutant(rare.notices_are_forgotten_too_early, ("I6",), 28, within=150),
    Mutant(open_commands_leak, ("L1",), 1),
    Mutant(rare.places_of_callers_leak, ("L2",), 4, within=30),
    Mutant(rare.progress_reopens, ("I1", "I2", "I4", "I5"), 2),
    Mutant(redelivered_is_dropped, ("I4",), 15, within=60),
    Mutant(silence_ends_a_session, ("L1", "I4"), 124, within=150, commands=200, changed=stalled_as_it_stops),
    Mutant(stale_wake_up, ("I2", "I3", "I5")),
    Mutant(rare.survivors_repeat_everything, ("I7",), 21, within=60),
    Mutant(rare.unconfirmed_is_unsent, ("F5",), 464, within=500),
)
"""Nobody has planted these into nodes of the rig, and most of them real processes would seldom show."""

MUTANTS: Final = {one.plant.__name__: one for one in (*OF_THE_RIG, *OF_ITS_OWN)}


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The mistake is there while this lasts."""
    with taken_back():
        mutant.plant()
        yield
