"""The messages that answered nothing and that a node tells of a command."""

from __future__ import annotations

from app.core.commands.callback import Answer
from app.core.commands.command import CommandState
from app.core.commands.misses import Target
from app.core.profiles.correlation import Correlation
from app.observers.notes import Notes
from tests.contract.store_backends import ManualClock

ID = "151-01M80ZQYYQW6PR18C8J3RFTSV5"


def result(device: str, value: str = "POWER") -> Answer:
    topic = f"stat/{device}/RESULT"
    return Answer(topic, device, Correlation.VALUE, value, CommandState.SUCCEEDED, profile="tasmota")


def test_a_message_of_another_device_that_says_the_same_value_is_not_near() -> None:
    """Two plugs are told POWER: what one says of it is not about the other's command."""
    clock = ManualClock()
    notes = Notes("n1", clock)
    at = round(clock.wall() * 1e6)
    for device in ("plug-2", "plug-1"):
        notes.missed("duplicate", result(device))
    told = notes.about(ID, Target("plug-1", [ID, "POWER"], ["stat/plug-1/RESULT"], at - 1, at + 1))
    assert [one.device for one in told.misses] == ["plug-1"]
    clock.now += 32
    later = round(clock.wall() * 1e6)
    told = notes.about(ID, Target("plug-1", [ID, "POWER"], ["stat/plug-1/RESULT"], later - 2_000_000, later))
    assert told.misses == []
