"""Nodes with one mistake each, planted to see that the rig finds it: `python -m tests.rig.chaos.mutants NAME serve`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from tests.rig.chaos.event_mutants import (
    dead_letters_forgotten,
    events_acknowledged_at_once,
    events_before_they_are_durable,
    events_given_up,
    events_out_of_line,
    events_without_a_fence,
    pushed_is_done_whatever_the_reply,
    pushes_stop_while_one_fails,
    queue_lock_freed_before_retry,
    queue_loses_what_it_reads,
)
from tests.rig.chaos.held_mutants import (
    children_of_each_driver,
    forgets_what_it_claims,
    lanes_let_all_go,
    runs_stay_with_their_driver,
    sends_however_old_the_claim,
    sends_what_another_has_claimed,
)
from tests.rig.planting import change, product_class
from tests.rig.router.mutants import short_wait_is_enough


def puback_before_store() -> None:
    """PUBACK as soon as a response has come."""
    inbox = product_class("app.mqtt.inbox.Inbox")
    handle = inbox.handle

    def too_early(self: Any, delivery: Any) -> None:
        delivery.acknowledge()
        handle(self, delivery)

    inbox.handle = too_early


def no_adoption() -> None:
    """Sessions of dead nodes are left alone."""

    async def look(_self: Any) -> None:
        pass

    product_class("app.cluster.adopter.Adopter").look = look


def adoption_throws_away() -> None:
    """The messages of a dead node's session are acknowledged and forgotten."""
    session = product_class("app.mqtt.paho_drain.PahoSessionDrain")
    drain = session.drain

    async def in_vain(self: Any, filters: Any, _handler: Any, idle: timedelta) -> Any:
        return await drain(self, filters, lambda delivery: delivery.acknowledge(), idle)

    session.drain = in_vain


def stops_without_handing_over() -> None:
    """A node that stops neither unsubscribes nor settles what it has, and ends its session at once."""

    async def hand_over(_self: Any, _steps: Any) -> bool:
        return True

    product_class("app.node.Node")._hand_over = hand_over


def sweep_off() -> None:
    """Nobody ends the overdue commands of dead nodes."""

    async def sweep(self: Any) -> None:
        await asyncio.sleep(self._interval)

    product_class("app.commands.deadlines.sweeper.Sweeper").sweep = sweep


def no_fencing() -> None:
    """A node that lost its lease does not notice."""
    cluster = product_class("app.cluster.redis.RedisCluster")
    renew = cluster._renew

    async def always(self: Any, node: Any) -> bool:
        await renew(self, node)
        return True

    cluster._renew = always


def publishes_late() -> None:
    """A command that could not be sent is sent when the broker is back, as paho would do by itself (F5)."""
    client, link = product_class("app.mqtt.paho.PahoMqttClient"), product_class("app.mqtt.paho_link.PahoLink")
    unavailable = product_class("app.core.errors.BrokerUnavailableError")
    publish, open_link = client.publish, link.open
    kept: list[Any] = []

    def keep(self: Any, publication: Any) -> Any:
        try:
            return publish(self, publication)
        except unavailable:
            kept.append(publication)
            raise

    async def send_kept(self: Any, *arguments: Any, **named: Any) -> None:
        await open_link(self, *arguments, **named)
        while kept:
            self.publish(kept.pop())

    client.publish = keep
    client.connected = property(lambda _self: True)
    link.open = send_kept


def wake_ups_lost_and_no_resync() -> None:
    """A caller learns of an outcome only where its response came in."""
    waker = product_class("app.callbacks.waker.Waker")

    async def fetch(_self: Any, _ids: Any, _way: Any) -> None:
        pass

    waker.wake = lambda _self, _command_id, _outcome: None
    waker._fetch = fetch


def publish_before_register() -> None:
    """The command leaves before it is on record (F1)."""
    invoker, store = (
        product_class("app.commands.send.invoker.Invoker"),
        product_class("app.store.redis.commands.store.RedisStateStore"),
    )
    opened, publish, register = invoker._open, invoker._publish, store.register
    begun: list[Any] = []

    def remember(self: Any, *asked: Any, **how: Any) -> Any:
        begun.append(self)
        return opened(self, *asked, **how)

    async def send_first(self: Any, registration: Any) -> Any:
        sender = begun.pop()
        now = round(product_class("app.runtime.system.SystemClock")().wall() * 1_000_000)
        command = registration.command(now, now + registration.timeout // timedelta(microseconds=1))
        pending = sender._open_commands.get(command.id)
        pending.about(command)
        publish(sender, command, pending, None)
        pending.registered = False
        await asyncio.sleep(0.01)
        return await register(self, registration)

    invoker._open, store.register = remember, send_first
    invoker._publish = lambda _self, _command, _pending, _trace: None


def idempotency_ignored() -> None:
    """A retry is a new command (F14)."""
    registrar = product_class("app.commands.send.registrar.Registrar")
    registration_of = registrar.registration
    registrar.registration = lambda self, request, *asked: registration_of(
        self, replace(request, idempotency_key=None), *asked
    )


def drops_when_full() -> None:
    """A node that has fifty responses under way acknowledges and drops the others (F54)."""
    inbox = product_class("app.mqtt.inbox.Inbox")
    handle = inbox.handle

    def drop(self: Any, delivery: Any) -> None:
        if len(self._arrived) > 50:
            delivery.acknowledge()
        else:
            handle(self, delivery)

    inbox.handle = drop


def outcome_overwritten() -> None:
    """A response that comes after the outcome replaces it: no compare-and-set (F8)."""
    change("commands/respond", "if not finished then\n  local outcome", "if state ~= 'running' then\n  local outcome")


def oldest_waiter_wins() -> None:
    """A response answers the command that has waited longest on its topic, whatever id it carries (F10)."""
    oldest = "redis.call('ZRANGE', key('topic', topic_digest), 0, 0)[1] or ARGV[2]"
    change("commands/respond", "  id = ARGV[2]\n", f"  id = {oldest}\n")


def index_never_ends() -> None:
    """The topic index has no end of its own, and an outcome takes nothing out of it (F36)."""
    change("parts/outcome", "redis.call('ZREM', key('topic', topic.digest), id)", "redis.call('EXISTS', record)")
    change(
        "parts/lives", "/ 1000) then\n    redis.call('PEXPIREAT', name, at_ms)", "/ 1000) then\n    redis.call('TIME')"
    )


def old_session_left_behind() -> None:
    """A node that begins again does not note its old session to be adopted."""
    cluster = product_class("app.cluster.redis.RedisCluster")
    join = cluster.join

    async def forgetful(self: Any, node: Any, **_replaces: Any) -> None:
        await join(self, node)

    cluster.join = forgetful


def ghosts_in_the_group() -> None:
    """The same, and the name of the group outlives the memory of sessions: ghosts take their share of it."""
    old_session_left_behind()
    module = import_module("app.cluster.redis")
    scripts = module.cluster_scripts()
    lasting = {name: text.replace("redis.call('PEXPIRE', KEYS[1], ARGV[3])", "") for name, text in scripts.items()}
    assert lasting != scripts
    module.cluster_scripts = lambda: lasting  # type: ignore[attr-defined]


def only_leases_tell() -> None:
    """A session that has lost its connection waits until the lease of its node has run out."""
    cluster = product_class("app.cluster.redis.RedisCluster")
    claim = cluster.claim

    async def patient(self: Any, orphan: Any, right: timedelta, **_lost: Any) -> Any:
        return await claim(self, orphan, right)

    cluster.claim = patient


def wills_unheard() -> None:
    """Nobody acts on what the broker says of dead sessions."""
    product_class("app.cluster.adopter.Adopter").heard = lambda _self, _notice: None


def canary_always_well() -> None:
    """Canaries die and nobody says so."""
    product_class("app.cluster.canary.Canary").health = "ok"


def canary_never_forgives() -> None:
    """A node that has missed canaries once is unready for ever."""
    import_module("app.cluster.canary").MEMORY_SECONDS = 1e9  # type: ignore[attr-defined]


def waits_when_taken_over() -> None:
    """A node whose session was taken over waits until it may have it back."""

    async def taken_over(_self: Any) -> None:
        await asyncio.get_running_loop().create_future()

    product_class("app.mqtt.paho.PahoMqttClient").taken_over = taken_over


def webhooks_try_once() -> None:
    """A delivery that a receiver did not take is given up."""
    delivery = product_class("app.core.webhooks.deliveries.Delivery")
    after = delivery.after

    def once(self: Any, *asked: Any) -> Any:
        tried = after(self, *asked)
        waiting = tried.next_at is not None
        return replace(tried, progress=type(tried.progress)("given_up"), next_at=None) if waiting else tried

    delivery.after = once


@dataclass(frozen=True, slots=True)
class Mutant:
    """`scenario` finds it, and says so with one of `found_as`: figures missed, or kinds of violations.

    `faults`: a schedule in place of the one from the seed; `settings`: of the nodes.
    """

    plant: Callable[[], None]
    scenario: str
    found_as: tuple[str, ...]
    faults: str = ""
    commands: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType(
    {
        one.plant.__name__: one
        for one in (
            # Cut off from Redis, then killed before it could record what it had acknowledged.
            Mutant(puback_before_store, "R10", ("answer_lost",), faults="1 blackhole n2 3\n2.5 kill n2 1\n"),
            Mutant(no_adoption, "R3", ("answer_lost",)),
            Mutant(adoption_throws_away, "R3", ("answer_lost",)),
            # Told to stop while it cannot record what it has: only a session that is kept saves that.
            Mutant(
                stops_without_handing_over,
                "R10",
                ("answer_lost",),
                faults="1 blackhole n2 14\n1.5 restart n2 1\n",
                settings={"HOMING_CLUSTER_DRAIN_DELAY": "0s", "HOMING_CLUSTER_LEASE": "20s"},
            ),
            Mutant(sweep_off, "R2", ("never_final", "unfinished")),
            Mutant(no_fencing, "R5", ("not_reborn", "not_back")),
            Mutant(publishes_late, "R13", ("executed_unsent", "executed_late")),
            Mutant(wake_ups_lost_and_no_resync, "R6", ("storm_p99_ms",)),
            Mutant(publish_before_register, "R15", ("missed_echoes", "answer_lost"), commands=120),
            Mutant(idempotency_ignored, "R5", ("executed_twice",)),
            Mutant(drops_when_full, "R14", ("answer_lost",)),
            Mutant(outcome_overwritten, "R15", ("answer_differs", "outcome_changed", "disagree")),
            Mutant(oldest_waiter_wins, "R16", ("wrong_answer",)),
            Mutant(index_never_ends, "R18", ("keys_left",)),
            Mutant(old_session_left_behind, "R24", ("ghosts",)),
            Mutant(ghosts_in_the_group, "R25", ("after_unanswered",)),
            Mutant(only_leases_tell, "R26", ("after_unanswered", "answer_lost", "not_back")),
            Mutant(wills_unheard, "R3", ("p99_ms",)),
            Mutant(canary_always_well, "R27", ("unnoticed",)),
            Mutant(canary_never_forgives, "R27", ("recovered_s",)),
            Mutant(waits_when_taken_over, "R28", ("not_begun_again",)),
            Mutant(webhooks_try_once, "R30", ("untold",)),
            Mutant(sends_what_another_has_claimed, "R31", ("held_twice", "held_after_end")),
            # Devices say hello each second, and the fail-overs meet what is claimed then.
            Mutant(
                short_wait_is_enough,
                "FORGET",
                ("held_twice", "answer_lost"),
                faults="1.25 fail_over redis 0.5\n3.75 fail_over redis 0.5\n6.4 fail_over redis 0.5\n",
                commands=600,
            ),
            Mutant(
                forgets_what_it_claims,
                "FORGET-ALONE",
                ("held_twice",),
                faults="1.25 fail_over redis 0.5\n3.75 fail_over redis 0.5\n6.4 fail_over redis 0.5\n",
                commands=600,
            ),
            # Frozen for longer than commands have, and not for so long that its session is another's; and the budget of
            # its calls, which would end the claim, is longer.
            Mutant(
                sends_however_old_the_claim,
                "FREEZE",
                ("past_deadline",),
                faults="0 slow n1 20\n0 slow n2 20\n0 slow n3 20\n1 freeze n1 4\n2 freeze n2 4\n7 freeze n3 4\n",
                settings={"HOMING_STORE_BUDGET": "20s"},
            ),
            Mutant(lanes_let_all_go, "LANES", ("lane_together", "lane_order")),
            Mutant(children_of_each_driver, "RUN", ("run_twice",)),
            Mutant(runs_stay_with_their_driver, "PARTITION", ("drivers",)),
            # An event waits for so long that the kill meets some which were acknowledged.
            Mutant(
                events_acknowledged_at_once,
                "E2",
                ("events_lost",),
                settings={"HOMING_EVENTS_FLUSH_INTERVAL": "1s", "HOMING_EVENTS_MAX_ITEMS": "512"},
            ),
            Mutant(queue_lock_freed_before_retry, "E8", ("queue_order",)),
            Mutant(queue_loses_what_it_reads, "E8", ("queue_lost",)),
            Mutant(dead_letters_forgotten, "E8", ("poison_alive",)),
            Mutant(pushed_is_done_whatever_the_reply, "E9", ("pushed_lost",)),
            Mutant(pushes_stop_while_one_fails, "E9", ("pushed_held_up",)),
            Mutant(events_without_a_fence, "E3", ("events_jumped",)),
            Mutant(events_given_up, "E4", ("events_lost",)),
            Mutant(events_out_of_line, "E1", ("events_jumped",)),
            Mutant(events_before_they_are_durable, "E13", ("events_lost",)),
        )
    }
)


def main() -> None:
    """Plant the mistake, then run the node."""
    MUTANTS[sys.argv.pop(1)].plant()
    import_module("app.cli").main()


if __name__ == "__main__":
    main()
