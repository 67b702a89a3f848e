"""Topic aliases that a broker gives to a client, in place of whole topics (MQTT 5, section 3.3.2.3.4)."""

from __future__ import annotations

from dataclasses import replace

from app.core.broker.codes import Property
from app.core.broker.packets import Publish


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
        if known is None and len(self._by_topic) >= self._most:
            return None
        values = {**packet.properties.values, Property.TOPIC_ALIAS: known or len(self._by_topic) + 1}
        topic = packet.topic if known is None else ""
        return replace(packet, topic=topic, properties=replace(packet.properties, values=values))

    def sent(self, packet: Publish) -> None:
        """Take note that the client knows the alias of this packet now."""
        if packet.topic:
            self._by_topic[packet.topic] = packet.properties.number(Property.TOPIC_ALIAS)
