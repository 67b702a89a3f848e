"""The last hour as a node remembers it, and that it does not remember more."""

from __future__ import annotations

from app.callbacks.pending import Pending
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome
from app.core.last_hour import MINUTES, MethodName
from app.observers.recent import MOST_METHODS, MOST_TOLD, RecentCommands
from tests.unit.assembly import ManualClock


def ended(method: str = "photo", took: float = 0.2, state: CommandState = CommandState.SUCCEEDED) -> Pending:
    """A command with a timeout of ten seconds that took so long."""
    pending = Pending(opened_at=100.0)
    pending.about(Command("id", "SN1", method, b"{}", "dji", CommandState.PENDING, "node-a", 1_000_000, 11_000_000))
    pending.registered_at = 100.01
    pending.close(Outcome("id", state, 2_000_000), 100.0 + took, None)
    return pending


def test_commands_are_counted_by_the_minute_and_by_method() -> None:
    clock = ManualClock()
    recent = RecentCommands(clock)
    recent.closed(ended(took=0.2))
    clock.advance(60)
    recent.closed(ended("land", 3.0, CommandState.TIMED_OUT))
    recent.foreign(Outcome("other", CommandState.TIMED_OUT, 5))
    recent.foreign(Outcome("another", CommandState.CANCELLED, 5))
    found = recent.read()
    first, second = found.minutes.values()
    assert (first.ended, second.ended) == ({"succeeded": 1}, {"timed_out": 2})
    assert second.buckets.total() == 1, "how long another node's took is not known"
    assert set(found.methods) == {MethodName("dji", "photo"), MethodName("dji", "land")}
    assert found.methods[MethodName("dji", "land")].timeout == 10.0


def test_what_is_older_than_an_hour_is_forgotten_whatever_the_clock_does() -> None:
    clock = ManualClock()
    recent = RecentCommands(clock)
    for _ in range(3 * MINUTES):
        recent.closed(ended())
        clock.advance(60)
    assert len(recent.read().minutes) <= MINUTES
    [method] = recent.read().methods.values()
    assert MINUTES - 1 <= method.ended.total() <= MINUTES + 5
    clock.advance(-7200)
    recent.closed(ended())
    assert sum(one.ended.total() for one in recent.read().minutes.values()) >= 1
    clock.advance(24 * 3600)
    assert (dict(recent.read().minutes), dict(recent.read().methods)) == ({}, {})


def test_methods_that_are_too_many_count_among_all() -> None:
    recent = RecentCommands(ManualClock())
    recent.closed(ended("busy"))
    for number in range(2 * MOST_METHODS):
        recent.closed(ended(f"method-{number}"))
    recent.closed(ended("busy"))
    found = recent.read()
    assert len(found.methods) == MOST_TOLD
    assert found.methods[MethodName("dji", "busy")].ended.total() == 2
    assert sum(one.ended.total() for one in found.minutes.values()) == 2 * MOST_METHODS + 2


def test_a_command_of_an_earlier_start_is_counted_and_not_measured() -> None:
    recent = RecentCommands(ManualClock())
    pending = ended()
    pending.registered_at = None
    recent.closed(pending)
    [minute] = recent.read().minutes.values()
    assert (minute.ended.total(), minute.quantile(0.5)) == (1, None)
