"""The devices that anything is known of: on record, by their presence, by last values, or by recent commands."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from app.access.devices import Filter, shown
from app.api.dependencies import Asker
from app.api.pages import filled
from app.api.ports import Ports
from app.api.representation import instant
from app.core.access.patterns import fits
from app.core.errors import InvalidInputError
from app.core.events.presence import Change, change_of
from app.events.plane import EventPlane
from app.store.commands import Query

MOST_LOOKED_AT: Final = 1_000
"""One look reads so many last values, at most."""
LOOKS: Final = 20
"""After so many looks a page is short, though there may be more: thousands of devices that the caller may not read."""
MOST_COMMANDS: Final = 200
AT_ONCE: Final = 16
MOST_PLACE: Final = 3 * 1_024 + 16
"""The bytes of the longest place: a number and an escaped topic."""
_PLACE: Final = re.compile("([0-9]{1,4})\\.([!-~]*)")
_UNRECORDED: Final[Mapping[str, Any]] = {"tenant": None, "profile": None, "labels": {}, "note": ""}


class _Batch(NamedTuple):
    """A part of a source: devices, each with the place behind it, and where the next part begins; None: nowhere."""

    found: Sequence[tuple[Mapping[str, Any], str]]
    behind: str | None


_Source: TypeAlias = Callable[[str, int, int], Awaitable[_Batch]]
"""Reads so many entries behind a place; more devices than are wanted (the last number) need not be found."""


class HeardDevices:
    """One list of a caller, from several sources in turn: a device is in the first one that knows of it.

    On record, by presence, by the last values of each topic filter that names devices, by recent commands. Each is in
    an order of its own. What a caller may not read is no source to them, and pages are filled up with what is behind
    it: nobody learns from their number how much there is of others.
    """

    def __init__(self, ports: Ports, asker: Asker, asked: Filter) -> None:
        self._ports = ports
        self._asker = asker
        self._asked = asked

    async def page(self, place: str) -> tuple[list[Mapping[str, Any]], str | None]:
        """Devices behind a place, and the place where the next page goes on; InvalidInputError."""
        sources = self._sources()
        number, after = _read(place, len(sources))
        found: list[Mapping[str, Any]] = []
        look, looks = self._asked.limit if fits(self._asked.id, "") else MOST_LOOKED_AT, LOOKS
        while number < len(sources):
            room = self._asked.limit - len(found)
            if not looks:
                return await self._described(found), _place(number, after)
            batch = await sources[number](after, look, room)
            found += [one for one, _ in batch.found[:room]]
            if len(batch.found) >= room:
                return await self._described(found), _place(number, batch.found[room - 1][1])
            if batch.behind is None:
                number, after = number + 1, ""
            else:  # few of those before it are for this caller
                after, look, looks = batch.behind, MOST_LOOKED_AT, looks - 1
        return await self._described(found), None

    def _sources(self) -> list[_Source]:
        """Return the sources; labels, profile and tenant are those of a record, so that others have none."""
        sources: list[_Source] = [self._on_record]
        if self._asked.tenant is None and self._asked.profile is None and not self._asked.labels:
            events = self._ports.events
            if events is not None:
                sources.append(partial(self._by_presence, events))
                sources += [partial(self._by_values, events, *one) for one in events.plan.filters_of_devices()]
            sources.append(self._by_commands)
        return sources

    async def _on_record(self, after: str, _look: int, _room: int) -> _Batch:
        records = self._ports.directory
        if records is None:
            return _Batch((), None)
        found, behind = records.devices.page(self._asker.caller, replace(self._asked, after=after))
        return _Batch([({**shown(one), "on_record": True}, one.id) for one in found], behind)

    async def _by_presence(self, events: EventPlane, after: str, look: int, _room: int) -> _Batch:
        told = await events.presence.told(after, look)
        changes = [(one, change_of(one.entry)) for one in told]
        known = [(found[0].device_id, one) for one, found in changes if found is not None]
        found = [
            (_unrecorded(device), one.entry.topic)
            for device, one in known
            if self._is_wanted(device) and self._asker.may_read_event(one.entry)
        ]
        return _Batch(found, told[-1].entry.topic if len(told) == look else None)

    async def _by_values(
        self, events: EventPlane, database: str, topic_filter: str, after: str, look: int, room: int
    ) -> _Batch:
        told = await events.values.topics(database, topic_filter, after, look)
        wanted = (one for one in told if self._is_wanted(one.entry.device) and self._asker.may_read_event(one.entry))
        found: list[tuple[Mapping[str, Any], str]] = []
        for one in wanted:
            if len(found) < room and await self._first_of(events, one.entry.device) in (None, one.entry.topic):
                found.append((_unrecorded(one.entry.device), one.entry.topic))
        return _Batch(found, told[-1].entry.topic if len(told) == look else None)

    async def _by_commands(self, after: str, _look: int, _room: int) -> _Batch:
        read = self._ports.commands.store.list_commands
        page = await filled(read, Query(limit=MOST_COMMANDS), self._asker.may_read, sees_all=self._asker.sees_all)
        devices = sorted({one.device_id for one in page.commands})
        events = self._ports.events
        found = []
        for device in devices:
            if device > after and self._is_wanted(device):
                if events is not None and await self._first_of(events, device) is not None:
                    continue
                found.append((_unrecorded(device), device))
        return _Batch(found, None)

    def _is_wanted(self, device: str) -> bool:
        records = self._ports.directory
        recorded = records is not None and records.devices.is_known(device)
        return bool(device) and not recorded and fits(self._asked.id, device)

    async def _first_of(self, events: EventPlane, device: str) -> str | None:
        """Return the topic by which the caller finds the device first: that of its presence, or of a last value."""
        presence = await events.presence.event_of(device)
        if presence is not None and self._asker.may_read_event(presence.entry):
            return presence.entry.topic
        values = await events.values.latest_of(device)
        return next((one.entry.topic for one in values if self._asker.may_read_event(one.entry)), None)

    async def _described(self, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Add what is heard of each device, and how many of its commands have failed lately."""
        if not found:
            return []
        overview = await self._ports.overviews.read()
        failed = Counter(
            one.device_id for one in overview.failures if self._asker.may_know(one.device_id, one.profile, one.method)
        )
        permits = asyncio.Semaphore(AT_ONCE)

        async def described(one: Mapping[str, Any]) -> Mapping[str, Any]:
            async with permits:
                return {**one, **await self._signs(one["id"]), "failures": failed[one["id"]]}

        return await asyncio.gather(*map(described, found))

    async def _signs(self, device: str) -> Mapping[str, Any]:
        events = self._ports.events
        if events is None:
            return {"online": None, "last_seen": None}
        event = await events.presence.event_of(device)
        change = None if event is None or not self._asker.may_read_event(event.entry) else change_of(event.entry)
        values = await events.values.latest_of(device)
        at = [one.position for one in values if self._asker.may_read_event(one.entry)]
        if change is not None:
            at.append(change[1])
        return {"online": _online(change), "last_seen": instant(max(at)) if at else None}


def _read(place: str, sources: int) -> tuple[int, str]:
    """Return the number of the source, and the place in it, that a cursor stands for."""
    if not place:
        return 0, ""
    found = _PLACE.fullmatch(place)
    if found is None or int(found[1]) >= sources:
        raise InvalidInputError("cursor", "is none that this list gave; leave it out to begin anew")
    return int(found[1]), unquote(found[2])


def _place(source: int, after: str) -> str:
    """The place behind an entry of a source, as `_read` takes it."""
    return f"{source}.{quote(after, safe='/')}"


def _unrecorded(device: str) -> Mapping[str, Any]:
    return {"id": device, **_UNRECORDED, "on_record": False}


def _online(change: tuple[Change, int] | None) -> bool | None:
    return None if change is None else change[0].online
