"""Reads what devices say without being asked, under all profiles at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from app.core.commands.callback import Answer
from app.core.messages import ReceivedMessage
from app.core.profiles.device_events import DeviceEvent, DeviceMessage, EventSpec, PresenceSign, PresenceSpec
from app.core.profiles.profile import DeviceProfile
from app.core.replies.reply import Candidate, ReplySpec, candidate
from app.core.topics import TopicTemplate
from app.core.topictree import LONG_TOPIC, MOST_TOPICS, TopicTree

Reading: TypeAlias = Answer | DeviceEvent | PresenceSign
"""All that a message of a device can be. One message may be several of them."""


class _EventKind(NamedTuple):
    profile: str
    spec: EventSpec | PresenceSpec


class _MatchedKind(NamedTuple):
    """A kind that messages of a topic may be, and what stands in the places of its placeholders."""

    profile: str
    spec: EventSpec | PresenceSpec
    values: dict[str, str]


class EventReader:
    """Reads messages under several profiles; within a profile the first kind of event that fits counts, and so on.

    `events`, `presence`: whether it reads those.
    """

    def __init__(self, profiles: Iterable[DeviceProfile], *, events: bool = True, presence: bool = True) -> None:
        self._tree: Final = TopicTree[_EventKind]()
        kinds = []
        for one in profiles:
            if events:
                kinds += [_EventKind(one.name, spec) for spec in one.events]
            if presence:
                kinds += [_EventKind(one.name, spec) for spec in one.presence]
        self._filters: Final = tuple(dict.fromkeys(kind.spec.topic.filter() for kind in kinds))
        for kind in kinds:
            self._tree.enter(kind.spec.topic, kind)
        self._known: Final = lru_cache(MOST_TOPICS)(self._kinds_of)

    def filters(self) -> tuple[str, ...]:
        """The topic filters that bring all of it, without repetition."""
        return self._filters

    def hears(self, topic: str) -> bool:
        """True if a message of the topic may be any of it."""
        levels = topic.split("/")
        return any(kind.spec.topic.match(levels) is not None for kind in self._tree.find(levels))

    def read(self, message: ReceivedMessage) -> list[DeviceEvent | PresenceSign]:
        """All that the message is; nothing where it is no event of any profile. It raises nothing.

        The ids of devices are as the message has them: they may be none of ours. Payloads that cannot be read are
        events as well.
        """
        topic = message.topic
        found: list[DeviceEvent | PresenceSign] = []
        decided = set()
        said = DeviceMessage(message)
        for profile, spec, values in (self._known if len(topic) <= LONG_TOPIC else self._kinds_of)(topic):
            scope = profile, type(spec)
            if scope in decided:
                continue
            one = spec.read(profile, said, values)
            if one is not None:
                decided.add(scope)
                found.append(one)
        return found

    def _kinds_of(self, topic: str) -> Sequence[_MatchedKind]:
        levels = topic.split("/")
        found = ((kind, kind.spec.topic.match(levels)) for kind in self._tree.find(levels))
        return [_MatchedKind(*kind, values) for kind, values in found if values is not None]


class ReplyReader:
    """Finds the kinds of replies that a message fits, under all profiles at once."""

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        speaking = tuple(profiles)
        kinds = [(one.name, spec) for one in speaking for spec in one.replies]
        self._filters: Final = tuple(dict.fromkeys(spec.topic.filter() for _, spec in kinds))
        self._tree: Final = TopicTree[tuple[str, ReplySpec]]()
        for kind in kinds:
            self._tree.enter(kind[1].topic, kind)
        self._heard: Final = TopicTree[TopicTemplate]()
        for topic in [*(spec.topic for one in speaking for spec in one.responses), *(spec.topic for _, spec in kinds)]:
            self._heard.enter(topic, topic)
        ends = [spec.topic.levels[-1] for _, spec in kinds]
        self._ends: Final = frozenset(one for one in ends if one is not None)
        self._any_end: Final = len(self._ends) < len(set(ends))

    def filters(self) -> tuple[str, ...]:
        """The topic filters that bring the messages, without repetition."""
        return self._filters

    def may_concern(self, topic: str) -> bool:
        """False for nearly all messages that get no reply; it costs next to nothing, and every message is asked."""
        return self._any_end or topic.rpartition("/")[2] in self._ends

    def hears(self, topic: str) -> bool:
        """True if Homing itself reads what is published there."""
        levels = topic.split("/")
        return any(template.match(levels) is not None for template in self._heard.find(levels))

    def read(self, message: ReceivedMessage, now_ms: int) -> Sequence[Candidate]:
        """The kinds that fit, of the first profile that has any; raises nothing.

        Ids of devices are as the message has them: they may be none of ours.
        """
        levels = message.topic.split("/")
        found: list[Candidate] = []
        for profile, spec in self._tree.find(levels):
            if found and profile != found[0].profile:
                break
            values = spec.topic.match(levels)
            one = None if values is None else candidate(spec, profile, message, values, now_ms)
            if one is not None:
                found.append(one)
        return found
