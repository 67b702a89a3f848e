"""Facts of the event log about devices that a run may mean: they are there or not, and have said something last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol

from app.access.ports import Access
from app.core.access.callers import Caller
from app.core.errors import EventsOffError, InvalidInputError
from app.core.events.event import Event
from app.core.events.presence import change_of, topic_of
from app.core.fleets.targets import TargetCandidate, TargetQuestions, TargetSelector
from app.core.identifiers import name_of
from app.core.profiles.interlocks import LastWord
from app.core.topics import TopicTemplate

MOST_ASKED: Final = 10_000
"""The number of devices that one run asks the event log about."""
TOGETHER: Final = 100


class LastOf(Protocol):
    """Says what came last on a topic."""

    async def __call__(self, topic: str, device_id: str = "") -> Event | None:
        """Return the last event; `device_id` is named for Homing's own topics. EventsOffError where none are kept."""


class TargetFacts:
    """`now_us` is this node's time, in microseconds since 1970, as positions of events are."""

    def __init__(self, access: Access, last_of: LastOf, now_us: Callable[[], int]) -> None:
        self._access = access
        self._last_of = last_of
        self._now_us = now_us

    async def meant(
        self, devices: Sequence[TargetCandidate], selector: TargetSelector, caller: Caller | None
    ) -> set[str]:
        """Return the ids of the devices that a selector means, by what the caller may read of them.

        What they have said is read and let go a few at a time. InvalidInputError where they are too many, or the node
        keeps no events; UnavailableError.
        """
        if len(devices) > MOST_ASKED:
            raise InvalidInputError(
                "targets",
                f"ask what {len(devices)} devices have said last; allowed are {MOST_ASKED}: narrow them by labels",
            )
        found: set[str] = set()
        try:
            for start in range(0, len(devices), TOGETHER):
                some = devices[start : start + TOGETHER]
                told = await asyncio.gather(*(self.told(one, selector.asks, caller) for one in some))
                found.update(one.device_id for one in told if selector.means(one))
        except EventsOffError:
            raise InvalidInputError(
                "targets",
                "ask what devices have said last, which an event log has, and this node has none; set "
                "HOMING_EVENTS_URL",
            ) from None
        return found

    async def told(self, one: TargetCandidate, asks: TargetQuestions, caller: Caller | None) -> TargetCandidate:
        """Return a device with the answers to these questions, as far as the caller may read them."""
        presence = None
        if asks.online:
            presence = await self._read(caller, topic_of(one.device_id), one.device_id)
        words = {topic.text: await self._word(topic, one.device_id, caller) for topic in asks.topics}
        return replace(one, online=_online(presence), words=words)

    async def _word(self, topic: TopicTemplate, device_id: str, caller: Caller | None) -> LastWord | None:
        try:
            place = topic.filled({"device_id": name_of(device_id)})
        except InvalidInputError:  # no device with such a name speaks on it
            return None
        event = await self._read(caller, place)
        return None if event is None else LastWord(event.entry.value, self._age(event))

    async def _read(self, caller: Caller | None, topic: str, device_id: str = "") -> Event | None:
        """Return the last event of a topic; None where there is none, or it is nothing for the caller."""
        event = await self._last_of(topic, device_id)
        if event is None:
            return None
        profile, _, name = event.entry.kind.partition(":")
        return event if self._access.may_read(caller, event.entry.device, profile, name) else None

    def _age(self, event: Event) -> timedelta:
        return timedelta(microseconds=self._now_us() - event.position)


def _online(presence: Event | None) -> bool | None:
    found = None if presence is None else change_of(presence.entry)
    return None if found is None else found[0].online
