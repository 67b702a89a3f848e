"""Random histories of clients and of a broker that is killed at any moment, beside a model of what it had promised."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.core.broker.codes import PacketType
from app.core.broker.packets import Connack, Connect, FilterOptions, Packet, Publish, PublishAck, Subscribe, Unsubscribe
from tests.unit.core.broker.kept import KeptBench
from tests.unit.core.broker.peers import V5, Peer, payloads, properties

NAMES = ("a", "b", "c")
TOPICS = ("t", "u")
FILTERS = ("t", "#", "u")
LONG = properties(SESSION_EXPIRY_INTERVAL=100_000)
names, topics, filters = map(st.sampled_from, (NAMES, TOPICS, FILTERS))
levels = st.sampled_from([0, 1, 2])


@dataclass
class Promises:
    """The broker has this in mind; a copy of it is what it has on the disk."""

    sessions: set[str] = field(default_factory=set)
    filters: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in NAMES})
    received: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in NAMES})
    owed: dict[str, Counter[tuple[bytes, int]]] = field(default_factory=lambda: {name: Counter() for name in NAMES})
    """Payloads and QoS of all that a client was to get in this session."""
    retained: dict[str, bytes] = field(default_factory=dict)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        if retain:
            self.retained[topic] = payload
        for name in self.sessions:
            fitting = [most for one, most in self.filters[name].items() if one in ("#", topic)]
            level = min(qos, max(fitting, default=0))
            if level:
                self.owed[name][payload, level] += 1

    def forget(self, name: str) -> None:
        self.sessions.discard(name)
        self.filters[name], self.received[name], self.owed[name] = {}, set(), Counter()


@dataclass
class Client:
    """A client that never forgets, as one with a disk of its own."""

    name: str
    peer: Peer | None = None
    accepted: bool = False
    unfinished: dict[int, Publish | PublishAck] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    got: Counter[bytes] = field(default_factory=Counter)
    may_have: set[bytes] = field(default_factory=set)
    """All that the broker had on its disk for it at some time."""
    last_id: int = 0


class KilledBroker(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = KeptBench(by_hand=True)
        self.clients = {name: Client(name) for name in NAMES}
        self.promised, self.on_disk = Promises(), Promises()
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.subscribe("a", "#", 2)
        self.subscribe("b", "t", 1)

    def teardown(self) -> None:
        self.come_to_rest()

    @rule(name=names, clean=st.sampled_from([False, False, False, True]))
    def connect(self, name: str, *, clean: bool) -> None:
        """Also where the client has a connection, which is taken over then."""
        client = self.clients[name]
        if clean and (client.unfinished or self.owes(client)):
            return  # what it gives up is not judged
        client.peer, client.accepted = self.bench.peer(), False
        client.peer.say(Connect(V5, name, clean_start=clean, properties=LONG))
        if clean:
            self.promised.forget(name)
        self.promised.sessions.add(name)

    @rule(name=names)
    def lose_connection(self, name: str) -> None:
        client = self.clients[name]
        if client.peer is not None:
            client.peer.drop()
        client.peer, client.accepted = None, False

    @rule(name=names, topic=topics, qos=levels, retain=st.booleans())
    def publish(self, name: str, topic: str, qos: int, *, retain: bool) -> None:
        client = self.online(name)
        self.count += 1
        packet_id = 0
        if qos:
            packet_id = client.last_id = client.last_id + 1
        packet = Publish(topic, b"%d" % self.count, qos, retain, packet_id=packet_id)
        if qos:
            client.unfinished[packet_id] = packet
        self.say(client, packet)

    @rule(name=names, topic_filter=filters, qos=levels)
    def subscribe(self, name: str, topic_filter: str, qos: int) -> None:
        client = self.online(name)
        if client.peer is not None:
            client.peer.say(Subscribe(1, (FilterOptions(topic_filter, qos, retain_handling=2),)))
            self.promised.filters[name][topic_filter] = qos

    @rule(name=names, topic_filter=filters)
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        client = self.online(name)
        if client.peer is not None:
            client.peer.say(Unsubscribe(1, (topic_filter,)))
            self.promised.filters[name].pop(topic_filter, None)

    @rule(name=names, most=st.integers(1, 5))
    def read(self, name: str, most: int) -> None:
        """Look at some of what has come, and answer it."""
        client = self.clients[name]
        if client.peer is None:
            return
        said, client.peer.said = client.peer.said[:most], client.peer.said[most:]
        for packet in said:
            self.answer(client, packet)

    @rule()
    def sync(self) -> None:
        self.bench.sync()
        self.on_disk = deepcopy(self.promised)
        for client in self.clients.values():
            client.may_have |= {payload for payload, _ in self.on_disk.owed[client.name]}

    @rule(synced=st.booleans())
    def kill(self, *, synced: bool) -> None:
        if synced:
            self.sync()  # and nobody has read what was said
        self.bench.kill()
        self.promised = deepcopy(self.on_disk)
        for client in self.clients.values():
            client.peer, client.accepted = None, False

    def come_to_rest(self) -> None:
        """All come back and read: everybody has what it was owed."""
        for name in NAMES:
            self.connect(name, clean=False)
        for _ in range(1000):
            self.sync()
            busy = [one for one in self.clients.values() if one.peer is not None and one.peer.said]
            if not busy:
                break
            for client in busy:
                self.read(client.name, 1000)
        for client in self.clients.values():
            assert not client.unfinished, "everything was acknowledged"
            for (payload, qos), times in self.promised.owed[client.name].items():
                assert client.got[payload] >= 1, (client.name, payload)
                assert client.got[payload] == 1 or qos == 1, (client.name, payload)
                assert times == 1 or qos == 1
        judge = self.bench.peer()
        judge.say(Connect(V5, "judge"))
        judge.say(Subscribe(1, (FilterOptions("#"),)))
        self.sync()
        assert sorted(payloads(judge.hear())) == sorted(self.promised.retained.values())
        judge.drop()

    @invariant()
    def nobody_has_what_a_crash_took_back(self) -> None:
        for client in self.clients.values():
            assert client.got.keys() <= client.may_have

    def online(self, name: str) -> Client:
        """Connect it, unless it is."""
        client = self.clients[name]
        if not client.accepted:
            self.connect(name, clean=False)
            self.sync()
            self.read(name, 1000)
        return client

    def owes(self, client: Client) -> bool:
        """Return whether the broker owes it something, as far as it knows or its disk has it."""
        owed = [*self.promised.owed[client.name], *self.on_disk.owed[client.name]]
        return any(payload not in client.got for payload, _ in owed)

    def say(self, client: Client, packet: Publish | PublishAck) -> None:
        """Send it, and tell the model."""
        if client.peer is None:
            return
        client.peer.say(packet)
        if isinstance(packet, Publish):
            mine = self.promised.received[client.name]
            if packet.qos == 2 and packet.packet_id in mine:
                return
            if packet.qos == 2:
                mine.add(packet.packet_id)
            self.promised.publish(packet.topic, packet.payload, packet.qos, retain=packet.retain)
        elif packet.type is PacketType.PUBREL:
            self.promised.received[client.name].discard(packet.packet_id)

    def answer(self, client: Client, packet: Packet) -> None:
        match packet:
            case Connack():
                self.accepted(client, packet)
            case Publish(qos=1):
                client.got[packet.payload] += 1
                self.say(client, PublishAck(PacketType.PUBACK, packet.packet_id))
            case Publish(qos=2):
                if packet.packet_id not in client.received:
                    client.received.add(packet.packet_id)
                    client.got[packet.payload] += 1
                self.say(client, PublishAck(PacketType.PUBREC, packet.packet_id))
            case PublishAck(type=PacketType.PUBREL):
                client.received.discard(packet.packet_id)
                self.say(client, PublishAck(PacketType.PUBCOMP, packet.packet_id))
            case PublishAck(type=PacketType.PUBREC):
                released = PublishAck(PacketType.PUBREL, packet.packet_id)
                if packet.packet_id in client.unfinished:
                    client.unfinished[packet.packet_id] = released
                self.say(client, released)
            case PublishAck():
                client.unfinished.pop(packet.packet_id, None)

    def accepted(self, client: Client, connack: Connack) -> None:
        client.accepted = True
        if not connack.session_present:
            client.unfinished.clear()
            client.received.clear()
        for packet in [*client.unfinished.values()]:
            self.say(client, replace(packet, dup=True) if isinstance(packet, Publish) else packet)


def test_random_histories_with_kills() -> None:
    run_state_machine_as_test(
        KilledBroker,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[*HealthCheck],
            derandomize=True,
            phases=[Phase.generate],
        ),
    )
