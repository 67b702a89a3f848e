"""The figures of a broker as retained messages below `$SYS/broker/`, in the names that people know from Mosquitto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app.core.broker.message import Message

if TYPE_CHECKING:
    from app.core.broker.broker import Broker

FIGURES: Final = "$SYS/"
"""The beginning of the topics of a broker itself; no client may publish there."""
INTERVAL_SECONDS: Final = 10.0
JUMP_SECONDS: Final = 3_600
"""A clock of the machine that has jumped by less since the start is not told of."""
_DROPPED: Final = "broker.dropped."
_NAMES: Final = 10
_NAME: Final = 64
"""A figure has so many client ids, and so much of each."""


class BrokerFigures:
    """Publishes what has changed, every ten seconds, with QoS 0. Nothing of it is kept on the disk."""

    def __init__(self, broker: Broker, version: str) -> None:
        self._broker = broker
        self._version: Final = version
        self._since: Final = broker.now()
        self._epoch: Final = broker.epoch
        self._next = self._since
        self._most_connected = 0
        self._said: dict[str, str] = {}

    def tick(self) -> None:
        """Publish if it is time; once a second is often enough."""
        now = self._broker.now()
        if now < self._next:
            return
        self._next = now + INTERVAL_SECONDS
        for name, value in self._figures(now).items():
            if self._said.get(name, "") != value:
                self._said[name] = value
                topic = f"{FIGURES}broker/{name}"
                self._broker.publish(Message(topic=topic, payload=value.encode(), qos=0, retain=True, publisher=""))

    def _figures(self, now: float) -> Mapping[str, str]:
        broker, counters = self._broker, self._broker.counters
        connected = sum(one.connected for one in broker.connections)
        self._most_connected = max(self._most_connected, connected)
        numbers = {
            "clients/connected": connected,
            "clients/total": len(broker.sessions),
            "clients/maximum": self._most_connected,
            "messages/received": counters["broker.received"],
            "messages/sent": counters["broker.sent"],
            "bytes/received": counters["broker.received_bytes"],
            "bytes/sent": counters["broker.sent_bytes"],
            "publish/messages/dropped": sum(value for name, value in counters.items() if name.startswith(_DROPPED)),
            "retained messages/count": len(broker.retained),
            "subscriptions/count": len(broker.subscriptions),
            "store/messages/bytes": broker.waiting_bytes,
        }
        uptime = f"{int(now - self._since)} seconds"
        contested = ", ".join(f"{one[:_NAME]!a}" for one in broker.take_overs.contested[:_NAMES])
        jump = round(broker.epoch - self._epoch)
        said = {
            "version": self._version,
            "uptime": uptime,
            "clients/contested": contested,
            "clock/jump": f"{jump} seconds" if abs(jump) >= JUMP_SECONDS else "",
        }
        return said | {name: str(one) for name, one in numbers.items()}
