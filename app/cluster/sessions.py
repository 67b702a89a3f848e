"""The MQTT session of each incarnation of this node, and what the broker tells of those of other nodes."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.cluster.directory import NodeInfo
from app.core.clock import Clock, IdFactory
from app.core.cluster.charter import Charter
from app.core.cluster.notices import SessionNotice, Word, decode_notice, encode_notice, notice_topic
from app.core.topics import share
from app.mqtt.base import Subscription, Will
from app.runtime.telemetry import Counters

_OF_LOST_SESSIONS: Final = (Word.LOST, Word.LEFT)
"""The words that say that a session may be adopted."""

OwnTopics = MutableMapping[str, Callable[[bytes], None]]
"""Topics on which nodes speak to nodes, each with who takes the payload."""


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """The session that an incarnation of this node asks the broker for."""

    info: NodeInfo
    subscriptions: Sequence[Subscription]
    will: Will | None


class Sessions:
    """Makes them. `group` is what the name of the share group begins with; None for a node alone, which shares nothing.

    Some small brokers know no shared subscriptions, and a node alone has nobody to tell that it is gone. `heard` is
    told what other nodes say, to all or to this one; `answer` publishes a payload on a topic, or not when there is no
    connection.
    """

    def __init__(
        self,
        *,
        group: str | None,
        prefix: str,
        filters: Sequence[str],
        own_topics: OwnTopics,
        heard: Callable[[SessionNotice], None],
        answer: Callable[[str, bytes], None],
        new_ulid: IdFactory,
        new_secret: Callable[[], str],
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._group: Final = group
        self._prefix: Final = prefix
        self._filters: Final = tuple(filters)
        self._own_topics = own_topics
        self._heard = heard
        self._answer = answer
        self._new_ulid = new_ulid
        self._new_secret = new_secret
        self._clock = clock
        self._counters = counters
        self._noticed = ""
        self._charter: Charter | None = None
        self._info: NodeInfo | None = None

    def incarnation(self, node_id: str, secret: str | None = None) -> NodeInfo:
        """The next incarnation of this node; its client id cannot be guessed.

        With a `secret` of an earlier start it goes on with the session of that one.
        """
        client_id = self._client_id(node_id, secret or self._new_secret())
        return NodeInfo(node_id, self._new_ulid(), client_id, self._clock.wall())

    def named(self, notice: SessionNotice) -> NodeInfo | None:
        """The incarnation that a notice is about, as this node has to know it to adopt its session.

        None if the notice does not say the name of the session. That is taken to have the subscriptions of this node's.
        """
        if not notice.secret or self._info is None:
            return None
        client_id = self._client_id(notice.node_id, notice.secret)
        return NodeInfo(notice.node_id, notice.incarnation, client_id, self._clock.wall(), self._info.filters)

    def _client_id(self, node_id: str, secret: str) -> str:
        return f"{self._prefix}-{node_id}-{secret}"

    def of(self, info: NodeInfo, charter: Charter) -> BrokerSession:
        """The session of an incarnation under a charter; from now on notices under this charter are heard."""
        self._own_topics.pop(self._noticed, None)
        if self._group is None:
            subscriptions = [Subscription(one) for one in self._filters]
            return BrokerSession(_with_filters(info, subscriptions), subscriptions, None)
        topic = self._noticed = notice_topic(charter)
        self._charter = charter
        group = f"{self._group}-{charter.group}"
        subscriptions = [
            *(Subscription(share(group, one)) for one in self._filters),
            Subscription(topic, needed=False),
        ]

        def hear(payload: bytes) -> None:
            notice = self._read(payload, charter)
            if notice is None or notice.incarnation == info.incarnation:
                return
            if notice.word is Word.WHO:
                self.say(Word.HERE, notice.incarnation)
            elif notice.asker in ("", info.incarnation):  # an answer is for the node that asked
                self._heard(notice)

        self._own_topics[topic] = hear
        joined = self._info = _with_filters(info, subscriptions)
        lost, back = (self._said(word, joined, charter) for word in (Word.LOST, Word.BACK))
        return BrokerSession(joined, subscriptions, Will(topic, lost, back))

    def say(self, word: Word, asker: str = "") -> None:
        """Tell the other nodes a word of this incarnation; nobody, where there are none or no connection."""
        if self._charter is not None and self._info is not None:
            self._answer(notice_topic(self._charter), self._said(word, self._info, self._charter, asker))

    def _said(self, word: Word, info: NodeInfo, charter: Charter, asker: str = "") -> bytes:
        secret = info.client_id.removeprefix(self._client_id(info.node_id, "")) if word in _OF_LOST_SESSIONS else ""
        return encode_notice(SessionNotice(word, info.node_id, info.incarnation, asker, secret), charter)

    def _read(self, payload: bytes, charter: Charter) -> SessionNotice | None:
        try:
            return decode_notice(payload, charter)
        except ValueError:
            self._counters["drop.bad_notice"] += 1
            return None


def _with_filters(info: NodeInfo, subscriptions: Sequence[Subscription]) -> NodeInfo:
    return replace(info, filters=tuple(one.topic_filter for one in subscriptions))
