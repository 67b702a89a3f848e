"""Reads what devices say without being asked, under all profiles at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from app.core.callback import Answer
from app.core.device_events import DeviceEvent, EventSpec, Presence, PresenceSpec
from app.core.messages import ReceivedMessage
from app.core.profile import DeviceProfile
from app.core.topictree import TopicTree

Reading: TypeAlias = Answer | DeviceEvent | Presence
"""All that a message of a device can be. One message may be several of them."""


class _Kind(NamedTuple):
    profile: str
    spec: EventSpec | PresenceSpec


class EventReader:
    """Reads messages under several profiles; within a profile the first kind of event that fits counts, and so on."""

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        self._tree: Final = TopicTree[_Kind]()
        kinds = []
        for one in profiles:
            kinds += [_Kind(one.name, spec) for spec in one.events]
            kinds += [_Kind(one.name, spec) for spec in one.presence]
        self._filters: Final = tuple(dict.fromkeys(kind.spec.topic.filter() for kind in kinds))
        for kind in kinds:
            self._tree.enter(kind.spec.topic, kind)

    def filters(self) -> tuple[str, ...]:
        """The topic filters that bring all of it, without repetition."""
        return self._filters

    def read(self, message: ReceivedMessage) -> list[DeviceEvent | Presence]:
        """All that the message is; nothing where it is no event of any profile. It raises nothing.

        The ids of devices are as the message has them: they may be none of ours.
        """
        levels = message.topic.split("/")
        found: list[DeviceEvent | Presence] = []
        decided = set()
        for profile, spec in self._tree.find(levels):
            scope = profile, type(spec)
            if scope in decided or (values := spec.topic.match(levels)) is None:
                continue
            one = spec.read(profile, message, values)
            if one is not None:
                decided.add(scope)
                found.append(one)
        return found
