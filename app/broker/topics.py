"""The devices that topics belong to, as profiles have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.core.identifiers import id_of_name
from app.core.profiles.profile import DeviceProfile
from app.core.topics import TopicTemplate
from app.core.topictree import MOST_TOPICS, TopicTree


@dataclass(frozen=True, slots=True)
class TopicUse:
    """The device of a topic and its profile, both empty if there is none. `told`: commands and replies come on it."""

    device: str = ""
    profile: str = ""
    told: bool = False


class DeviceTopics:
    """The topics of all profiles. Where one is told by a profile and said by another, it counts as told."""

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        self._told = TopicTree[tuple[TopicTemplate, str]]()
        self._said = TopicTree[tuple[TopicTemplate, str]]()
        for profile in profiles:
            for one in profile.told:
                self._told.enter(one, (one, profile.name))
            events, presence = (one.topic for one in profile.events), (one.topic for one in profile.presence)
            for one in (*profile.heard, *events, *presence):
                self._said.enter(one, (one, profile.name))
        self.use_of: Final = lru_cache(MOST_TOPICS)(self._use_of)

    def _use_of(self, topic: str) -> TopicUse:
        levels = topic.split("/")
        for tree, told in ((self._told, True), (self._said, False)):
            for template, profile in tree.find(levels):
                values = template.match(levels)
                if values is not None:
                    device = values.get("device_id")
                    return TopicUse("" if device is None else id_of_name(device), profile, told)
        return TopicUse()
