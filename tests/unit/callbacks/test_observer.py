"""Observers are told everything, change nothing, and harm nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.callbacks.observer import Observer, Observers
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.errors import BrokerUnavailableError
from app.core.messages import ReceivedMessage
from app.runtime.telemetry import Counters
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Assembly, Lamp, assemble, request, slow_to_register
from tests.waiting import turns

FACTS = {name for name, one in vars(Observer).items() if isfunction(one)}


def told_of(note: Callable[[str], None]) -> Observer:
    """One who overrides every fact."""

    def overriding(fact: str) -> Callable[..., None]:
        def told(_self: Observer, *_facts: object, **_named: object) -> None:
            note(fact)

        return told

    made: Observer = type("Curious", (Observer,), {fact: overriding(fact) for fact in FACTS})()
    return made


def broken(fact: str) -> None:
    raise RuntimeError(f"cannot bear {fact}")


def test_every_fact_has_its_listeners() -> None:
    observers = Observers(Counters(), [told_of(lambda _fact: None)])
    assert {name for name, one in vars(observers).items() if isinstance(one, tuple) and name[0] != "_"} == FACTS
    assert all(len(getattr(observers, fact)) == 1 for fact in FACTS)


def test_a_fact_that_nobody_cares_for_has_no_listeners() -> None:
    class OnlyForeign(Observer):
        def foreign(self, outcome: Outcome) -> None: ...

    observers = Observers(Counters(), [Observer(), OnlyForeign()])
    assert {fact: len(getattr(observers, fact)) for fact in FACTS} == dict.fromkeys(FACTS, 0) | {"foreign": 1}


def test_a_failing_observer_is_counted_logged_once_and_harms_no_other() -> None:
    counters, told = Counters(), list[str]()
    observers = Observers(counters, [told_of(broken), told_of(told.append)])
    with capture_logs() as logs:
        for _ in range(3):
            for tell in (*observers.unpromised, *observers.unconfirmed):
                tell("")
    assert told == ["unpromised", "unconfirmed"] * 3
    assert counters["observer.failed"] == 6
    assert [(one["event"], one["observer"], one["fact"]) for one in logs] == [
        ("observer_failed", "Curious", "unpromised"),
        ("observer_failed", "Curious", "unconfirmed"),
    ]


async def test_no_command_comes_to_harm_when_an_observer_fails(tmp_path: Path) -> None:
    told: Counter[str] = Counter()

    def note_and_fail(fact: str) -> None:
        told[fact] += 1
        broken(fact)

    with capture_logs():
        with_a_broken_one = await everything(tmp_path / "broken", told_of(note_and_fail))
    without = await everything(tmp_path / "plain")
    assert await stored(with_a_broken_one) == await stored(without)
    for one, other in zip(with_a_broken_one.members, without.members, strict=True):
        assert {name: count for name, count in one.counters.items() if name != "observer.failed"} == other.counters
        assert len(one.open_commands) == len(other.open_commands) == len(one.waiters) == 0
        assert not one.inbox._arrived
    assert sum(one.counters["observer.failed"] for one in with_a_broken_one.members) == told.total()
    # Store and broker were there, and no answer was to anything else.
    assert set(told) == FACTS - {"unconfirmed", "unrecorded", "refused", "missed", "next_in_lane"}


async def test_what_is_stored_depends_on_nobody_who_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = await stored(await everything(tmp_path / "observed"))
    monkeypatch.setattr("app.command_plane.observed.Observers", lambda counters, _observers: Observers(counters))
    unobserved = await stored(await everything(tmp_path / "unobserved"))
    assert unobserved == observed
    receptions = [outcome.reception for _, outcome in observed if outcome is not None]
    assert any(receptions)


async def everything(log_dir: Path, *observers: Observer) -> Assembly:
    """Most of what can happen to commands, on two nodes with a latency log."""
    assembly = await assemble(2, slow_to_register, log_dir=str(log_dir), observers=observers)
    home, other = assembly.members
    for member in assembly.members:
        assert member.journal is not None
        member.journal._log.store_clock.learn(1000.0, 1000.0, 1_700_001_000_000_000)
    lamp = Lamp(assembly.broker, answer)
    await lamp.start()
    for method in ("blink", "blink", "fade", "blink"):  # the broker gives the responses to both nodes in turn
        await (await home.invoker.invoke(request(method), park=True)).wait(AS_LONG_AS_IT_TAKES)
    for _ in range(2):
        await home.invoker.invoke(request("blink", idempotency_key="k"), park=False)
        await turns()
    silent = await home.invoker.invoke(request("sleep"), park=False)
    await other.invoker.cancel(silent.command.id)
    await turns()
    lamp.say(lamp.received[-1])
    lamp.say(lamp.received[-1])
    assembly.broker.publish(ReceivedMessage("homing/lamp-1/response", b"rubbish", qos=0))
    await turns()
    await unsent(assembly)
    await home.invoker.invoke(request(profile="dji", one_way=True), park=False)
    await turns()
    assembly.lost_wake_ups = True
    lost = await home.invoker.invoke(request("sleep"), park=False)
    await other.expirer.end(lost.command.id, CommandState.TIMED_OUT)
    home.waker.wake(lost.command.id, None)
    await turns()
    await assembly.members[0].inbox.drained()
    return assembly


async def unsent(assembly: Assembly) -> None:
    sending = asyncio.create_task(assembly.members[0].invoker.invoke(request(), park=True))
    await asyncio.sleep(0)
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await sending
    assembly.broker.restore("n1")
    await turns()


def answer(lamp: Lamp, command: dict[str, Any]) -> None:
    if command["method"] == "fade":
        lamp.say(command, "running", progress={"percent": 50})
    if command["method"] != "sleep":
        lamp.say(command)


async def stored(assembly: Assembly) -> list[tuple[Command | None, Outcome | None]]:
    identities = list(assembly.store._table.records)
    outcomes = await assembly.store.outcomes(identities)
    return list(zip(await assembly.store.get(identities), outcomes, strict=True))
