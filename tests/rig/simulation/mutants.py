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
from app.core.errors import PublishUnconfirmedError
from tests.rig.chaos import mutants as of_chaos


def _class(path: str) -> Any:
    return of_chaos._class(path)


def adoption_throws_away() -> None:
    """What a dead node's session held is acknowledged and forgotten."""
    session = _class("homing_rig.simulation.mqtt.SimSessionDrain")
    drain = session.drain

    async def in_vain(self: Any, filters: Any, _handler: Any, idle: timedelta) -> Any:
        return await drain(self, filters, lambda delivery: delivery.acknowledge(), idle)

    session.drain = in_vain


def outcome_overwritten() -> None:
    """A response that comes after the outcome replaces it."""
    writer = _class("app.store.memory.commands.writer.MemoryCommandWriter")

    def annex(self: Any, record: Any, answer: Any, _now: int) -> Any:
        self._settle(record, answer.state, answer.result, answer.error, "", received_by="n1")
        return MatchResult.WON

    writer._annex = annex


def oldest_waiter_wins() -> None:
    """A response answers the command that has waited longest on its topic, whatever id it carries."""
    writer = _class("app.store.memory.commands.writer.MemoryCommandWriter")
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

    _class("homing_rig.simulation.mqtt.SimLink").quiet = quiet


def stops_without_connection() -> None:
    """A node that has lost its connection while it stops says that its session is empty (found so)."""
    client = _class("homing_rig.simulation.mqtt.SimMqttClient")
    quiet = client.quiet
    unavailable = _class("app.core.errors.BrokerUnavailableError")

    async def content(self: Any, idle: timedelta) -> None:
        try:
            await quiet(self, idle)
        except unavailable:
            return

    client.quiet = content


def cancel_wins() -> None:
    """A cancellation replaces the outcome that a command has."""
    writer = _class("app.store.memory.commands.writer.MemoryCommandWriter")
    finish = writer.finish

    async def over(self: Any, command_id: str, state: Any, finisher: str, error: Any = None) -> Any:
        record = self._table.records.get(command_id)
        if record is not None and state is CommandState.CANCELLED:
            record.command = replace(record.command, state=CommandState.PENDING, finished_at=None, result=None)
        return await finish(self, command_id, state, finisher, error)

    writer.finish = over


def index_outlives_its_record() -> None:
    """What leads to a command is there for ever."""
    _class("app.store.memory.commands.records.Indexes").forget = lambda _self, _registration: None


def redelivered_is_dropped() -> None:
    """What the broker delivers again is taken for a repetition, and acknowledged."""
    inbox = _class("app.mqtt.inbox.Inbox")
    handle = inbox.handle

    def once(self: Any, delivery: Any) -> None:
        if delivery.message.redelivered:
            delivery.acknowledge()
        else:
            handle(self, delivery)

    inbox.handle = once


def client_id_used_again() -> None:
    """Each incarnation of a node has the MQTT client id of the one before."""
    sessions = _class("app.cluster.sessions.Sessions")
    incarnation = sessions.incarnation
    sessions.incarnation = lambda self, node_id, **how: replace(
        incarnation(self, node_id, **how), client_id=f"homing-{node_id}"
    )


def open_commands_leak() -> None:
    """A command that was never registered keeps its place."""
    _class("app.callbacks.open_commands.OpenCommands").discard = lambda _self, _command_id: None


def late_answers_are_dropped() -> None:
    """An answer after the deadline is acknowledged and nowhere."""
    writer = _class("app.store.memory.commands.writer.MemoryCommandWriter")
    writer._annex = lambda _self, _record, _answer, _now: MatchResult.DUPLICATE


def unconfirmed_is_sent_again() -> None:
    """A command whose PUBACK was lost is published once more."""
    invoker = _class("app.commands.send.invoker.Invoker")
    after = invoker._after_puback

    def again(self: Any, pending: Any, topic: str, puback: Any) -> None:
        lost = not puback.cancelled() and isinstance(puback.exception(), PublishUnconfirmedError)
        after(self, pending, topic, puback)
        if lost:
            self._later(self._once_more(pending))

    async def once_more(self: Any, pending: Any) -> None:
        (command,) = await self._store.get([pending.command_id])
        await self._publisher._mqtt.wait_connected()
        self._publisher.publish(command)

    invoker._after_puback, invoker._once_more = again, once_more


def commands_never_expire() -> None:
    """The broker may hand a command to a device whenever it comes back."""
    publisher = _class("app.commands.send.publisher.Publisher")
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
    keys = _class("homing_rig.simulation.redis.RedisModel")
    claim = keys._claim

    def always(self: Any, lease: str, *arguments: Any) -> Any:
        *names, _lost, session_ms = arguments
        return claim(self, lease, *names, "1", session_ms)

    keys._claim = always
    _class("app.cluster.redis.RedisCluster").orphans = _class("app.cluster.redis.RedisCluster").nodes


def stale_wake_up() -> None:
    """A caller is handed the outcome that was recorded before its own."""
    waiters = _class("app.callbacks.waiters.Waiters")
    wake = waiters.wake
    before: list[Any] = []

    def stale(self: Any, outcome: Any, pending: Any) -> Any:
        before.append(outcome)
        told = replace(before.pop(0), command_id=outcome.command_id) if len(before) > 1 else outcome
        return wake(self, told, pending)

    waiters.wake = stale


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rules`: what it breaks, one of which is found by a seed below `within`, with so many commands."""

    plant: Callable[[], None]
    rules: tuple[str, ...]
    within: int = 20
    commands: int = 60


MUTANTS: Final = {
    one.plant.__name__: one
    for one in (
        Mutant(of_chaos.puback_before_store, ("I4",)),
        Mutant(of_chaos.no_adoption, ("I4", "L1")),
        Mutant(of_chaos.stops_without_handing_over, ("I4", "L1")),
        Mutant(of_chaos.sweep_off, ("I1", "L1"), 60),
        Mutant(of_chaos.no_fencing, ("L1", "I4"), 60),
        Mutant(of_chaos.idempotency_ignored, ("I7",)),
        Mutant(of_chaos.drops_when_full, ("I4",), 60),
        Mutant(of_chaos.old_session_left_behind, ("L1", "I4"), 60),
        Mutant(of_chaos.waits_when_taken_over, ("L1",), 60),
        Mutant(of_chaos.wake_ups_lost_and_no_resync, ("limit", "I5", "L1"), 20),
        Mutant(adoption_throws_away, ("I4",)),
        Mutant(outcome_overwritten, ("I2", "I5", "I3")),
        Mutant(oldest_waiter_wins, ("I3",)),
        Mutant(silence_ends_a_session, ("L1", "I4"), 200, 200),
        Mutant(stops_without_connection, ("L1", "I4"), 200, 200),
        Mutant(cancel_wins, ("I2", "I5")),
        Mutant(index_outlives_its_record, ("I8",)),
        Mutant(redelivered_is_dropped, ("I4",)),
        Mutant(client_id_used_again, ("L1", "I4"), 60),
        Mutant(open_commands_leak, ("L1",)),
        Mutant(late_answers_are_dropped, ("I4",)),
        Mutant(unconfirmed_is_sent_again, ("I7",), 60),
        Mutant(commands_never_expire, ("F5",), 60),
        Mutant(claims_are_shared, ("L1", "I4")),
        Mutant(stale_wake_up, ("I3", "I5", "I2")),
    )
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The mistake is there while this lasts."""
    own, before = of_chaos._class, dict[Any, dict[str, Any]]()

    def noted(path: str) -> Any:
        found = own(path)
        before.setdefault(found, dict(vars(found)))
        return found

    of_chaos._class = noted
    try:
        mutant.plant()
        yield
    finally:
        of_chaos._class = own
        for one, was in before.items():
            for name, value in tuple(vars(one).items()):
                if name not in was:
                    delattr(one, name)
                elif was[name] is not value:
                    setattr(one, name, was[name])
