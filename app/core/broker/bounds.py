"""The bounds of a broker: nothing that a client does may take more than this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBounds:
    """Numbers of things and bytes; times are in seconds. What is beyond is refused, or dropped and counted."""

    connections: int = 10_000
    connections_per_peer: int = 1_000
    connects_per_peer: int = 100
    """CONNECT packets of one address in a second, as many at once."""
    connect_seconds: float = 5
    """The time for which a connection may be open before its CONNECT is there."""
    packet_seconds: float = 10
    """A client may be silent for so long in the middle of a packet."""
    packet_bytes: int = 268_435
    """The largest packet of a client, with its fixed header."""
    connect_bytes: int = 65_536
    """The largest CONNECT."""
    client_id_bytes: int = 256
    keep_alive: int = 300
    """The longest keep alive of a client of MQTT 5; 3.1.1 has no way to tell the client of a shorter one."""
    session_expiry: int = 604_800
    """The longest that a session lives without its connection."""
    sessions: int = 20_000
    subscriptions: int = 1_024
    """The subscriptions of one session."""
    all_subscriptions: int = 200_000
    topic_bytes: int = 1_024
    levels: int = 32
    """Levels of a topic name or filter."""
    inflight: int = 1_024
    """Messages of QoS 1 and 2 on the way to one client, and of QoS 2 from one client."""
    waiting: int = 100_000
    """Messages that wait for one session; the oldest one makes room."""
    waiting_bytes: int = 134_217_728
    """Bytes of all messages that wait for sessions or are on the way, each counted once."""
    retained: int = 50_000
    retained_bytes: int = 67_108_864
    process_bytes: int = 0
    """The memory that the whole process may take before no new session begins; 0 has no bound."""
    aliases: int = 64
    """Topic aliases of one client."""
    alias_bytes: int = 16_384
    """Bytes of the topics for which one client has aliases."""
    given_aliases: int = 16
    """Topic aliases that one client is given, if it takes as many."""

    @property
    def will_bytes(self) -> int:
        """Bytes of all wills, beyond which a client may have a small one."""
        return max(self.waiting_bytes // 4, 4 * self.connect_bytes)

    @property
    def received(self) -> int:
        """Messages of QoS 2 that all clients together have not released, beyond which each may have a few."""
        return max(self.waiting_bytes // 256, 4 * self.inflight)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of all packets whose rest has not come yet."""
        return max(self.waiting_bytes // 4, 4 * self.packet_bytes)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the sockets of all connections have not taken, beyond which messages wait in their sessions."""
        return self.unfinished_bytes
