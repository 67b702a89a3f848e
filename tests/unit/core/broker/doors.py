"""Doors of brokers in tests, and clients who knock at them."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.packets import Connack, Connect, WillMessage
from app.core.broker.properties import NO_PROPERTIES
from app.core.broker.rights import ClientCertificate, Permit
from tests.unit.core.broker.peers import BrokerBench, Peer, properties

V5 = ProtocolVersion.V5


@dataclass
class Rights:
    """Publishes to and receives what begins with the name of its owner."""

    owner: str
    counts: bool = True
    receives: bool = True
    says: bool = True
    alone: bool = False
    """True if it may be no member of a share."""

    @property
    def reminder(self) -> str:
        return f"{self.owner} as before"

    def valid(self) -> bool:
        return self.counts

    def may_publish(self, topic: str) -> bool:
        return self.says and topic.startswith(f"{self.owner}/")

    def publishes(self, topic: str) -> bool:
        return self.may_publish(topic)

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:
        return not (shared and self.alone) and topic_filter in ("#", f"{self.owner}/x")

    def may_receive(self, topic: str) -> bool:
        return self.receives and topic.startswith(f"{self.owner}/")


@dataclass
class Book:
    """A door for those who say their name twice."""

    known: dict[str, Rights] = field(default_factory=dict)
    away: dict[str, Rights] = field(default_factory=dict)
    """The rights of those who are away, where they are others than before."""
    knows: bool = True

    def admit(
        self, user_name: str | None, password: bytes | None, _certificate: ClientCertificate | None = None
    ) -> Permit | ReasonCode:
        if password is None:
            return ReasonCode.NOT_AUTHORIZED
        if user_name is None or password.decode() != user_name:
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD
        return self.known.setdefault(user_name, Rights(user_name))

    def absent(self, owner: str, reminder: str) -> Permit:
        """Return the rights that they have now, or none if they have come without a name."""
        assert reminder in ("", f"{owner} as before")
        return self.away.get(owner) or self.known.setdefault(owner, Rights(owner))


def knock(
    bench: BrokerBench,
    name: str | None,
    password: bytes | None,
    version: ProtocolVersion = V5,
    client_id: str = "",
    will: WillMessage | None = None,
    *,
    clean: bool = True,
    expiry: int = 0,
) -> tuple[Peer, ReasonCode]:
    peer = bench.peer(version)
    said = properties(SESSION_EXPIRY_INTERVAL=expiry) if expiry else NO_PROPERTIES
    connect = Connect(
        version, client_id, clean_start=clean, user_name=name, password=password, will=will, properties=said
    )
    connack, *peer.said = peer.say(connect)
    assert isinstance(connack, Connack)
    return peer, connack.reason
