"""A run asks the event log about devices for no more than its caller may read, and not about a whole continent."""

from __future__ import annotations

import pytest

from app.access.ports import Everybody
from app.core.access.callers import Caller
from app.core.errors import EventsOffError, InvalidInputError
from app.core.events.event import Entry, Event
from app.core.events.presence import Change, entry_of
from app.core.fleets.targets import TargetCandidate, TargetQuestions, read_selector
from app.core.topics import TopicTemplate
from app.fleets.target_facts import MOST_ASKED, TargetFacts

NOW = 1_700_000_000_000_000
TOPIC = TopicTemplate("d/{device_id}/osd")
ALL = TargetQuestions(online=True, topics=frozenset((TOPIC,)))
ONLINE = read_selector({"online": True})
EVENTS = {
    "d/dock-1/osd": Event(NOW - 2_000_000, 0, Entry("d/dock-1/osd", b"{}", "dock-1", "dji:osd")),
    "$homing/devices/dock-1/presence": Event(NOW, 0, entry_of(Change("dock-1", online=True), NOW)),
}


class Reader(Everybody):
    """Somebody who may read these of a device."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        del caller, device
        return f"{profile}:{method}" in self._kinds


async def last_of(topic: str, device_id: str = "") -> Event | None:
    assert bool(device_id) is topic.startswith("$homing/"), "these lie where their device does"
    return EVENTS.get(topic)


def candidate(name: str = "dock-1") -> TargetCandidate:
    return TargetCandidate(name, "dji", {})


async def told(asks: TargetQuestions, *kinds: str, name: str = "dock-1") -> tuple[bool | None, float | None]:
    one = await TargetFacts(Reader(*kinds), last_of, lambda: NOW).told(candidate(name), asks, None)
    word = one.words.get(TOPIC.text)
    return one.online, None if word is None else word.age.total_seconds()


async def test_it_is_told_what_its_caller_may_read() -> None:
    assert await told(ALL, "dji:osd", "homing:presence") == (True, 2.0)
    assert await told(ALL, "dji:osd") == (None, 2.0)
    assert await told(ALL, "homing:presence") == (True, None)
    assert await told(TargetQuestions(online=True), "dji:osd", "homing:presence") == (True, None)


@pytest.mark.parametrize("name", ["dock-2", "a%2Fb", "a%2B"])
async def test_of_others_nothing_is_known(name: str) -> None:
    assert await told(ALL, "dji:osd", "homing:presence", name=name) == (None, None)


async def test_one_run_asks_about_so_many_at_most() -> None:
    facts = TargetFacts(Everybody(), last_of, lambda: NOW)
    many = [candidate(f"dock-{number}") for number in range(MOST_ASKED + 1)]
    with pytest.raises(InvalidInputError, match=f"allowed are {MOST_ASKED}: narrow them by labels"):
        await facts.meant(many, ONLINE, None)


async def test_a_node_without_an_event_log_says_so() -> None:
    async def off(topic: str, device_id: str = "") -> Event | None:
        del topic, device_id
        raise EventsOffError("off")

    with pytest.raises(InvalidInputError, match="set HOMING_EVENTS_URL"):
        await TargetFacts(Everybody(), off, lambda: NOW).meant([candidate()], ONLINE, None)
    assert not read_selector({"devices": ["dock-1"]}).asks, "who asks nothing needs none"


async def test_those_are_meant_of_which_it_is_known() -> None:
    facts = TargetFacts(Everybody(), last_of, lambda: NOW)
    devices = [candidate(), candidate("dock-2")]
    assert await facts.meant(devices, ONLINE, None) == {"dock-1"}
    assert await facts.meant(devices, read_selector({"not": {"online": True}}), None) == set()
