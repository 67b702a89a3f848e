"""Subscriptions decide who gets a message; those of a share take turns (MQTT 5, sections 3.8 and 4.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.broker.filters import SHARED
from app.core.broker.message import Message
from app.core.broker.packets import FilterOptions
from app.core.filtertree import FilterTree, topic_pattern
from app.core.topictree import LONG_TOPIC, MOST_TOPICS

MOST_FITTING: Final = 131_072
"""The filters that are remembered for all topics together: a thousand shares may fit each topic."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription of a session. `identifier` is 0 where it has none."""

    options: FilterOptions
    identifier: int = 0


@dataclass(slots=True)  # nobody changes one: to be frozen makes it take three times as long to make
class Receiver:
    """A session that gets a message: with which QoS at most, and whether RETAIN stays as it was published.

    `share` is its shared filter, if it gets the message as the member of one.
    """

    client_id: str
    qos: int
    as_published: bool
    identifiers: tuple[int, ...] = ()
    share: str = ""


class SubscriptionTable:
    """All subscriptions of a broker. `best` chooses who of a share gets a message, from those whose turn it could be.

    `best` is given client ids, the one whose turn it is first, and the topic; None if none of them may have it.
    """

    def __init__(self, best: Callable[[list[str], str], str | None]) -> None:
        self._best = best
        self._filters: FilterTree[str] = FilterTree()
        self._by_filter: dict[str, dict[str, Subscribed]] = {}
        """Client ids and subscriptions, by filters as the clients wrote them."""
        self._turns: dict[str, int] = {}
        self._matched: dict[str, Sequence[str]] = {}
        """The filters that fit a topic, as long as there are no others."""
        self._fitting = 0
        """Their number, of all topics together."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, client_id: str, subscribed: Subscribed) -> bool:
        """Add or replace; whether it is a new one."""
        name = subscribed.options.topic_filter
        members = self._by_filter.get(name)
        if members is None:
            members = self._by_filter[name] = {}
            self._filters.add(topic_pattern(inner_filter(name)), name)
            self._forget()
        new = client_id not in members
        members[client_id] = subscribed
        self._count += new
        return new

    def remove(self, client_id: str, topic_filter: str) -> bool:
        """True if there was one."""
        members = self._by_filter.get(topic_filter, {})
        if members.pop(client_id, None) is None:
            return False
        self._count -= 1
        if not members:
            del self._by_filter[topic_filter]
            self._turns.pop(topic_filter, None)
            self._filters.remove(topic_pattern(inner_filter(topic_filter)), topic_filter)
            self._forget()
        return True

    def receivers(self, message: Message) -> Iterator[Receiver]:
        """One for each session, however many of its filters fit, and one for each share."""
        own: dict[str, list[Subscribed]] = {}
        for name in self._matching(message.topic):
            if name.startswith(SHARED):
                if (member := self.receiver_of(name, message.topic)) is not None:
                    yield member
                continue
            for client_id, one in self._by_filter[name].items():
                if not (one.options.no_local and client_id == message.publisher):  # [MQTT-3.8.3-3]
                    own.setdefault(client_id, []).append(one)
        for client_id, several in own.items():
            if len(several) == 1:
                yield _receiver(client_id, several[0])
                continue
            yield Receiver(
                client_id,
                max(one.options.qos for one in several),  # [MQTT-3.3.4-2]
                any(one.options.retain_as_published for one in several),
                tuple(one.identifier for one in several if one.identifier),
            )

    def _matching(self, topic: str) -> Sequence[str]:
        """The filters that fit a topic, looked up once while there are no others."""
        found = self._matched.get(topic)
        if found is None:
            found = tuple(self._filters.match(topic.split("/")))
            if len(topic) <= LONG_TOPIC:
                self._remember(topic, found)
        return found

    def _remember(self, topic: str, found: Sequence[str]) -> None:
        if len(self._matched) >= MOST_TOPICS or self._fitting + len(found) > MOST_FITTING:
            self._forget()
        self._matched[topic] = found
        self._fitting += len(found)

    def _forget(self) -> None:
        self._matched.clear()
        self._fitting = 0

    def receiver_of(self, share: str, topic: str) -> Receiver | None:
        """The member of a share who gets the next message [MQTT-4.8.2-5]; None if nobody in it may have the topic."""
        members = self._by_filter.get(share)
        if members is None:
            return None
        turn = self._turns.get(share, 0)
        self._turns[share] = turn + 1
        first, ids = turn % len(members), list(members)
        chosen = self._best([*ids[first:], *ids[:first]], topic)
        return None if chosen is None else _receiver(chosen, members[chosen], share)


def _receiver(client_id: str, one: Subscribed, share: str = "") -> Receiver:
    identifiers = (one.identifier,) if one.identifier else ()
    return Receiver(client_id, one.options.qos, one.options.retain_as_published, identifiers, share)


def inner_filter(topic_filter: str) -> str:
    """The filter itself, without the share in front of it."""
    return topic_filter.split("/", 2)[2] if topic_filter.startswith(SHARED) else topic_filter
