"""Mistakes that real processes would seldom show: `mutants.py` has the table of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.commands.send.unsent import not_sent
from app.core.clock import Clock
from app.core.commands.command import CommandState
from app.core.errors import PublishUnconfirmedError
from app.store.rules import WITHOUT_END
from tests.rig.planting import product_class


def adoption_is_noted_too_early() -> None:
    """A session counts as adopted before it is empty: who dies over it is followed by nobody."""
    adopter = product_class("app.cluster.adopter.Adopter")
    adopt = adopter._adopt

    async def noted_first(self: Any, orphan: Any) -> None:
        await self._cluster.adopted(orphan)
        await adopt(self, orphan)

    adopter._adopt = noted_first


def deliveries_die_with_their_node() -> None:
    """A delivery that a node had claimed when it died is tried by nobody else."""
    webhooks = product_class("app.store.memory.webhooks.MemoryWebhooks")
    claim = webhooks.claim

    async def for_ever(self: Any, endpoint_id: str, most: int, hold: Any) -> Any:
        claimed = await claim(self, endpoint_id, most, hold)
        for one in claimed:
            self._queue(endpoint_id).put(one.event_id, WITHOUT_END)
        return claimed

    webhooks.claim = for_ever


def deadlines_go_by_the_wall_clock() -> None:
    """A node keeps deadlines by the clock that people set."""
    expirer = product_class("app.commands.deadlines.expirer.Expirer")
    init = expirer.__init__

    def by_the_wall(self: Any, *, clock: Any, **others: Any) -> None:
        init(self, clock=_OfTheWall(clock), **others)

    expirer.__init__ = by_the_wall


class _OfTheWall:
    def __init__(self, clock: Clock) -> None:
        self.wall = self.monotonic = clock.wall


def forgotten_commands_keep_their_places() -> None:
    """A command that a store forgot as it failed over is open on its node for ever."""
    expirer = product_class("app.commands.deadlines.expirer.Expirer")
    end = expirer._end

    async def keep(self: Any, due: Any) -> Any:
        pending = self._open_commands.get(due.command_id)
        outcome = await end(self, due)
        if outcome is None and pending is not None:
            self._open_commands._pending.setdefault(due.command_id, pending)
        return outcome

    expirer._end = keep


def key_ends_with_the_outcome() -> None:
    """An idempotency key is free as soon as its command has an outcome."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")
    settle = writer._settle

    def free(self: Any, record: Any, *outcome: Any, **more: Any) -> None:
        settle(self, record, *outcome, **more)
        registration = record.registration
        self._table.indexes.idempotency.pop((registration.device_id, registration.idempotency_key or ""), None)

    writer._settle = free


def lease_without_a_session() -> None:
    """A node goes on with its lease when the store has forgotten which session it has."""
    keys = product_class("homing_rig.simulation.redis.RedisModel")

    def renew(self: Any, lease: str, _sessions: str, incarnation: str, _client_id: str, ms: int, _life: int) -> int:
        if self._live(lease) not in (None, incarnation):
            return 0
        self._set(lease, incarnation, "PX", ms)
        return 1

    keys._renew = renew


def missed_ends_are_forgotten() -> None:
    """An end that the store did not take is not tried again."""
    product_class("app.commands.deadlines.expirer.Expirer")._miss = lambda _self, _due, _failure: None


def notices_are_forgotten_too_early() -> None:
    """A notice for a webhook leaves the outbox before it is in the queue."""
    collector = product_class("app.webhooks.collector.Collector")

    async def collect(self: Any, partitions: Any) -> bool:
        notices = await self._store.outbox(partitions, 100)
        if notices:
            known = await self._commands.get([one.command_id for one in notices])
            await self._store.forget(notices)
            for notice, command in zip(notices, known, strict=True):
                await self._tell(notice, command, set())
        return False

    collector.collect = collect


def places_of_callers_leak() -> None:
    """A caller that goes away before the outcome leaves its place taken."""
    waiters = product_class("app.callbacks.waiters.Waiters")
    leave = waiters.leave

    def keep(self: Any, command_id: str, waiter: Any) -> None:
        parked = self._parked
        leave(self, command_id, waiter)
        self._parked = parked

    waiters.leave = keep


def progress_reopens() -> None:
    """A report of progress that comes after the outcome takes it away again."""
    writer = product_class("app.store.memory.commands.writer.MemoryCommandWriter")
    respond = writer.respond

    async def report(self: Any, answer: Any, receiver: str, **how: Any) -> Any:
        record = self._table.records.get(self._named_by(answer, self._table.now()))
        if record is not None and answer.state is CommandState.RUNNING and not record.open:
            record.command = replace(record.command, state=CommandState.RUNNING, finished_at=None, result=None)
        return await respond(self, answer, receiver, **how)

    writer.respond = report


def survivors_repeat_everything() -> None:
    """A survivor sends again whatever a dead node may not have sent."""

    def may(_self: Any, command: Any, registered_before: int | None) -> bool:
        is_before = registered_before is None or command.created_at < registered_before
        return command.state is CommandState.PENDING and is_before

    product_class("app.commands.send.repeater.Repeater")._may_repeat = may


def unconfirmed_is_unsent() -> None:
    """A command whose PUBACK did not come counts as one that did not leave."""
    invoker = product_class("app.commands.send.invoker.Invoker")
    after = invoker._after_puback

    def unsent(self: Any, pending: Any, topic: str, puback: Any) -> None:
        if not puback.cancelled() and isinstance(error := puback.exception(), PublishUnconfirmedError):
            self._later(self._expirer.end(pending.command_id, CommandState.UNSENT, not_sent(error)))
        else:
            after(self, pending, topic, puback)

    invoker._after_puback = unsent


def forgotten_sessions_stay_forgotten() -> None:
    """A node does not read in the will of another one which session that is."""
    product_class("app.cluster.sessions.Sessions").named = lambda _self, _notice: None
