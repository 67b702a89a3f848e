"""Topic aliases, which stand for whole topics on one connection (MQTT 5, section 3.3.2.3.4)."""

from __future__ import annotations

from dataclasses import replace
from sys import getsizeof
from typing import Final

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketError, Property, ReasonCode, protocol_error
from app.core.broker.packets import Publish
from app.core.broker.topic_names import check_topic_name
from app.core.topictree import LONG_TOPIC


class GivenAliases:
    """The aliases of one connection, for the topics that come first. `most` is how many there may be."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._by_topic: dict[str, int] = {}

    def shortened(self, packet: Publish) -> Publish | None:
        """Return the packet with an alias, and without its topic if the client knows the alias; None: as it is.

        It counts when it was sent, which `sent` is told.
        """
        known = self._by_topic.get(packet.topic)
        if known is None and (len(self._by_topic) >= self._most or len(packet.topic) > LONG_TOPIC):
            return None
        values = {**packet.properties.values, Property.TOPIC_ALIAS: known or len(self._by_topic) + 1}
        topic = packet.topic if known is None else ""
        return replace(packet, topic=topic, properties=replace(packet.properties, values=values))

    def sent(self, packet: Publish) -> None:
        """Take note that the client knows the alias of this packet now."""
        if packet.topic:
            self._by_topic[packet.topic] = packet.properties.number(Property.TOPIC_ALIAS)


class TakenAliases:
    """The aliases of one connection that the client has given."""

    def __init__(self, bounds: BrokerBounds) -> None:
        self._bounds: Final = bounds
        self._topics: dict[int, str] = {}
        self._bytes = 0

    def topic_of(self, packet: Publish) -> str:
        """Return the topic of a PUBLISH of the client, which may be an alias; PacketError."""
        if packet.properties.subscription_identifiers:
            raise protocol_error("PUBLISH of a client with a subscription identifier")  # [MQTT-3.3.4-6]
        alias = packet.properties.number(Property.TOPIC_ALIAS)
        if alias > self._bounds.aliases:
            raise PacketError(ReasonCode.TOPIC_ALIAS_INVALID, "a topic alias above Topic Alias Maximum")
        if packet.topic:
            check_topic_name(packet.topic, self._bounds)
            if alias:
                self._give(alias, packet.topic)
            return packet.topic
        if alias not in self._topics:
            raise protocol_error("a topic alias that stands for no topic")
        return self._topics[alias]

    def _give(self, alias: int, topic: str) -> None:
        self._bytes += getsizeof(topic) - getsizeof(self._topics.get(alias, ""))
        if self._bytes > self._bounds.alias_bytes:
            raise PacketError(ReasonCode.QUOTA_EXCEEDED, "the topics of the topic aliases are too long together")
        self._topics[alias] = topic
