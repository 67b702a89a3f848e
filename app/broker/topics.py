"""The devices that topics belong to, as profiles have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.core.identifiers import id_of_name
from app.core.profiles.device_events import EventSpec, PresenceSpec
from app.core.profiles.profile import DeviceProfile, ResponseSpec
from app.core.profiles.sources import DeviceSource, id_of_parts
from app.core.replies.reply import ReplySpec
from app.core.topics import TopicTemplate
from app.core.topictree import LONG_TOPIC, MOST_TOPICS, TopicTree

ANY: Final = "*"
"""A word in the place of a device id: the payload of a message names the device. None is called so."""


@dataclass(frozen=True, slots=True)
class TopicUse:
    """The device of a topic and its profile, both empty if there is none. `told`: commands and replies come on it."""

    device: str = ""
    profile: str = ""
    told: bool = False


@dataclass(frozen=True, slots=True)
class TopicParties:
    """The devices that speak on a topic and those that are spoken to on it, by all profiles."""

    speakers: frozenset[str]
    listeners: frozenset[str]

    def concern_only(self, device: str) -> bool:
        """True if no other device has anything to do with the topic."""
        return self.speakers | self.listeners == {device}


@dataclass(frozen=True, slots=True)
class _TopicKind:
    """A topic of a profile, with what puts the id of its device together where the topic has none as it is."""

    template: TopicTemplate
    profile: str
    source: DeviceSource | None = None
    form: TopicTemplate | None = None

    def device(self, values: Mapping[str, str]) -> str:
        """The device of a topic with these values; empty if the topic is of no device, ANY if the payload decides."""
        form = self.form
        if self.source is not None:
            if self.source.fixed is not None:
                return self.source.fixed
            form = self.source.form
            if form is None:
                return ANY
        if form is not None and values.keys() >= set(form.names):
            return id_of_parts(form, values) or ANY
        named = values.get("device_id")
        return "" if named is None else id_of_name(named)


class DeviceTopics:
    """The topics of all profiles. Where one is told by a profile and said by another, it counts as told."""

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        self._told = TopicTree[_TopicKind]()
        self._said = TopicTree[_TopicKind]()
        for profile in profiles:
            for request in profile.requests:
                self._told.enter(request.topic, _TopicKind(request.topic, profile.name, form=profile.device))
            for reply in profile.replies:
                form = profile.device if reply.device is None else reply.device.form
                self._told.enter(reply.to, _TopicKind(reply.to, profile.name, form=form))
            said: Iterable[ResponseSpec | ReplySpec | EventSpec | PresenceSpec] = (
                *profile.responses,
                *profile.replies,
                *profile.events,
                *profile.presence,
            )
            for one in said:
                self._said.enter(one.topic, _TopicKind(one.topic, profile.name, one.device))
        self._known_use: Final = lru_cache(MOST_TOPICS)(self._use_of)
        self._known_parties: Final = lru_cache(MOST_TOPICS)(self._parties_of)

    def use_of(self, topic: str) -> TopicUse:
        """Return the device of a topic."""
        return self._known_use(topic) if len(topic) <= LONG_TOPIC else self._use_of(topic)

    def parties_of(self, topic: str) -> TopicParties:
        """Return the devices on both sides of a topic."""
        return self._known_parties(topic) if len(topic) <= LONG_TOPIC else self._parties_of(topic)

    def _use_of(self, topic: str) -> TopicUse:
        levels = topic.split("/")
        for tree, told in ((self._told, True), (self._said, False)):
            for kind, values in _kinds(tree, levels):
                device = values.get("device_id")
                return TopicUse("" if device is None else id_of_name(device), kind.profile, told)
        return TopicUse()

    def _parties_of(self, topic: str) -> TopicParties:
        levels = topic.split("/")
        speakers, listeners = (
            frozenset(kind.device(values) for kind, values in _kinds(tree, levels)) - {""}
            for tree in (self._said, self._told)
        )
        return TopicParties(speakers, listeners)


def _kinds(tree: TopicTree[_TopicKind], levels: list[str]) -> Iterator[tuple[_TopicKind, dict[str, str]]]:
    for kind in tree.find(levels):
        values = kind.template.match(levels)
        if values is not None:
            yield kind, values
