"""The journal of a broker: what has changed since its rows were written, and which message has how many references.

A broker whose journal keeps nothing is one in memory alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from app.core.broker.figures import FIGURES
from app.core.broker.message import Message

if TYPE_CHECKING:
    from app.core.broker.session import Outgoing

_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """The names of things whose rows are to be written, or deleted where there is no such thing any more."""

    sessions: set[str] = field(default_factory=set)
    subscriptions: set[tuple[str, str]] = field(default_factory=set)
    """Client ids and filters."""
    received: set[tuple[str, int]] = field(default_factory=set)
    """Client ids, and packet identifiers of QoS 2 from the client."""
    references: set[tuple[str, int]] = field(default_factory=set)
    """Client ids, and places of messages for the client."""
    messages: set[int] = field(default_factory=set)
    """Numbers of messages."""
    retained: set[str] = field(default_factory=set)
    """Topics."""

    def __bool__(self) -> bool:
        return bool(
            self.references or self.messages or self.received or self.sessions or self.subscriptions or self.retained
        )


class BrokerJournal:
    """Told of every change by the broker and its sessions. `notice` is called with the first one after `take`.

    A reference is a message for one session. It has a *place*, which tells the order of all references, and its
    message has a *number*: the message is one row, however many references it has.
    """

    def __init__(self, *, keeps: bool = False, notice: Callable[[], None] = lambda: None) -> None:
        self.keeps: Final = keeps
        self.notice = notice
        self.messages: Final[dict[int, Message]] = {}
        self.references: Final[dict[int, Outgoing]] = {}
        self._changes = BrokerChanges()
        self._noticed = False
        self._numbers: Final[dict[int, int]] = {}
        """The entries by the identity of a message, which is in `messages` as long as it is in here."""
        self._holders: Final[dict[int, int]] = {}
        self._last_number = 0
        self._last_place = 0

    @property
    def changed(self) -> bool:
        """True if something was not taken yet."""
        return bool(self._changes)

    def take(self) -> BrokerChanges:
        """All changes since the last call."""
        taken, self._changes = self._changes, BrokerChanges()
        self._noticed = False
        return taken

    def put_back(self, changes: BrokerChanges) -> None:
        """These were taken, and not written."""
        mine = self._changes
        mine.sessions.update(changes.sessions)
        mine.subscriptions.update(changes.subscriptions)
        mine.received.update(changes.received)
        mine.references.update(changes.references)
        mine.messages.update(changes.messages)
        mine.retained.update(changes.retained)

    def session_changed(self, client_id: str) -> None:
        """The head of a session: connection, expiry, will."""
        self._mark(self._changes.sessions, client_id)

    def subscription_changed(self, client_id: str, topic_filter: str) -> None:
        """There is one, or no longer."""
        self._mark(self._changes.subscriptions, (client_id, topic_filter))

    def received_changed(self, client_id: str, packet_id: int) -> None:
        """There is such a packet identifier, or no longer."""
        self._mark(self._changes.received, (client_id, packet_id))

    def reference_changed(self, client_id: str, place: int) -> None:
        """It was sent, or is released."""
        self._mark(self._changes.references, (client_id, place))

    def refer(self, client_id: str, outgoing: Outgoing) -> None:
        """Begin to keep a message for a session."""
        self._last_place += 1
        outgoing.place = self._last_place
        self.references[outgoing.place] = outgoing
        self._hold(outgoing.message)
        self.reference_changed(client_id, outgoing.place)

    def drop(self, client_id: str, outgoing: Outgoing) -> None:
        """Keep it no longer; the message goes with its last reference."""
        del self.references[outgoing.place]
        self.reference_changed(client_id, outgoing.place)
        outgoing.place = 0
        self._let_go(outgoing.message)

    def retain(self, topic: str, old: Message | None, new: Message | None) -> None:
        """The retained message of a topic is another one now. Figures of the broker itself begin anew at each start."""
        if not self.keeps or topic.startswith(FIGURES):
            return
        if new is not None:
            self._hold(new)
        if old is not None:
            self._let_go(old)
        self.retained_changed(topic)

    def retained_changed(self, topic: str) -> None:
        """There is another retained message of a topic, or none."""
        self._mark(self._changes.retained, topic)

    def number_of(self, message: Message) -> int:
        """The number of a message that has references."""
        return self._numbers[id(message)]

    def restore(self, number: int, message: Message) -> None:
        """A message from the disk, which has no references yet."""
        self.messages[number] = message
        self._numbers[id(message)] = number
        self._holders[number] = 0
        self.begin_after(number, 0)

    def restore_reference(self, place: int, outgoing: Outgoing) -> None:
        """A reference from the disk."""
        outgoing.place = place
        self.references[place] = outgoing
        self._hold(outgoing.message)

    def begin_after(self, number: int, place: int) -> None:
        """Never give these or lower ones to somebody new."""
        self._last_number = max(self._last_number, number)
        self._last_place = max(self._last_place, place)

    def forget_unused(self) -> None:
        """Messages without references go."""
        for number in [number for number, holders in self._holders.items() if not holders]:
            self._forget(number)

    def _hold(self, message: Message) -> None:
        number = self._numbers.get(id(message))
        if number is None:
            self._last_number += 1
            number = self._numbers[id(message)] = self._last_number
            self.messages[number] = message
            self._mark(self._changes.messages, number)
        self._holders[number] = self._holders.get(number, 0) + 1

    def _let_go(self, message: Message) -> None:
        number = self._numbers[id(message)]
        self._holders[number] -= 1
        if not self._holders[number]:
            self._forget(number)

    def _forget(self, number: int) -> None:
        del self._holders[number]
        del self._numbers[id(self.messages.pop(number))]
        self._mark(self._changes.messages, number)

    def _mark(self, names: set[_Name], name: _Name) -> None:
        if not self.keeps:
            return
        names.add(name)
        if not self._noticed:
            self._noticed = True
            self.notice()
