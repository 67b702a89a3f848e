"""Finds out what a broker is and does, for `homing doctor`. Blocking; leaves nothing behind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from app.core.errors import BrokerUnavailableError
from app.core.topics import share
from app.mqtt.options import MqttOptions, tls_context

REPLY_SECONDS: Final = 3.0
"""The time that one answer of the broker may take."""
QUIET_SECONDS: Final = 0.3
"""After such a silence nothing more is coming."""
BUSY_SECONDS: Final = 1.5
"""The same in a burst, where a busy broker may pause, and what is missing counts as lost."""
SHARED_MESSAGES: Final = 20
PARKED_MESSAGES: Final = 1500
"""More than Mosquitto keeps for an absent client by default (1,000)."""
ROUND_TRIPS: Final = 21

_SYS_VERSION: Final = "$SYS/broker/version"
_SYS_DROPPED: Final = "$SYS/broker/publish/messages/dropped"
_SYS_CONTESTED: Final = "$SYS/broker/clients/contested"
_SYS_CLOCK_JUMP: Final = "$SYS/broker/clock/jump"
"""Only the broker of a node has these two, while there is anything to be said."""
_CLOCK_JUMP: Final = re.compile(rb"(-?[0-9]{1,12}) seconds")
_REFUSED: Final = 0x80
_NO_MATCHING_SUBSCRIBERS: Final = 0x10
_PROTOCOL_ERRORS: Final = (0x84, 0x01)
"""Unsupported protocol version, in CONNACK of MQTT 5 and of 3.1.1."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Topics to which a node must be able to publish, and filters to which it must be able to subscribe."""

    writes: Sequence[str] = ()
    absent: Sequence[str] = ()
    """The topics of `writes` that belong to a device that there is not."""
    reads: Sequence[str] = ()


@dataclass(slots=True)
class BrokerFacts:
    """The facts that a probe has seen. None where the broker does not tell."""

    protocol_refused: bool = False
    """It does not speak the MQTT version of the settings."""
    version: str | None = None
    dropped: int | None = None
    """Messages that the broker acknowledged and then dropped, since it started."""
    contested: str = ""
    """The client ids that several clients have, and take from each other."""
    clock_jump: int = 0
    """The seconds by which the clock of the broker's machine has jumped since it started; negative ones back."""
    maximum_qos: int = 2
    receive_maximum: int = 65_535
    shared_available: bool = True
    subscribe_refused: bool = False
    """SUBACK said no to a shared subscription."""
    shared_received: list[int] = field(default_factory=list)
    """The numbers of SHARED_MESSAGES that the two members of a group got."""
    publish_works: bool = True
    """A message to our own topic came back."""
    parked: int | None = None
    """The number of PARKED_MESSAGES, sent while their client was away, that were there when it came back."""
    refused_topics: list[str] = field(default_factory=list)
    """The topics and filters that a node needs and the broker refuses: `write <topic>`, `read <filter>`."""
    listened: list[str] | None = None
    """Topics of a device that there is not, for which the broker does not say that nobody is subscribed."""
    round_trip_ms: float | None = None
    """Median from PUBLISH to its arrival at another client."""


def probe(options: MqttOptions, clock: Callable[[], float], run_id: str, needs: Needs) -> BrokerFacts:
    """Look at the broker; BrokerUnavailableError with a reason when there is none to talk to.

    `run_id` makes topics and client ids unique: it publishes below `homing-doctor/<run_id>`, and once to each topic of
    `needs`. `clock` is monotonic seconds.
    """
    facts = BrokerFacts()
    topic = f"homing-doctor/{run_id}"
    with _Client(options, f"homing-doctor-{run_id}", clock).connected() as main:
        if main.reason in _PROTOCOL_ERRORS or (main.reason is None and _answers_other_version(options, main, clock)):
            facts.protocol_refused = True
            return facts
        main.check_accepted()
        facts.maximum_qos = getattr(main.properties, "MaximumQoS", 2)
        facts.receive_maximum = getattr(main.properties, "ReceiveMaximum", 65_535)
        facts.shared_available = bool(getattr(main.properties, "SharedSubscriptionAvailable", 1))
        _read_sys(main, facts)
        if facts.maximum_qos == 0:
            return facts
        _try_rights(main, options, clock, needs, facts)
        _measure_round_trip(main, options, clock, topic, facts)
        if facts.publish_works:
            _try_shared(main, options, clock, topic, facts)
            _try_parking(main, options, clock, topic, facts)
    return facts


def _answers_other_version(options: MqttOptions, main: _Client, clock: Callable[[], float]) -> bool:
    """True if a broker that ended the connection without CONNACK, as RabbitMQ 3.10 does, takes the other version."""
    other = replace(options, version="3.1.1" if options.version == "5" else "5")
    with contextlib.suppress(BrokerUnavailableError), _Client(other, main.client_id, clock).connected() as client:
        return client.reason == 0
    return False


def _read_sys(main: _Client, facts: BrokerFacts) -> None:
    main.subscribe(_SYS_CONTESTED)
    main.subscribe(_SYS_CLOCK_JUMP)
    main.subscribe(_SYS_VERSION)
    main.subscribe(_SYS_DROPPED)
    told = len({topic for topic, _ in main.messages} & {_SYS_CONTESTED, _SYS_CLOCK_JUMP})
    main.wait_for_messages(2 + told, QUIET_SECONDS)
    for topic, payload in main.messages:
        if topic == _SYS_VERSION:
            facts.version = payload.decode(errors="replace")[:100]
        elif topic == _SYS_DROPPED and payload.isdigit():
            facts.dropped = int(payload)
        elif topic == _SYS_CONTESTED:
            facts.contested = payload.decode(errors="replace")[:1000]
        elif topic == _SYS_CLOCK_JUMP and (jump := _CLOCK_JUMP.fullmatch(payload)):
            facts.clock_jump = int(jump[1])
    main.messages.clear()


def _measure_round_trip(
    main: _Client, options: MqttOptions, clock: Callable[[], float], topic: str, facts: BrokerFacts
) -> None:
    with _Client(options, f"{main.client_id}-echo", clock).connected() as echo:
        echo.check_accepted()
        echo.subscribe(f"{topic}/echo")
        durations = []
        for number in range(1, ROUND_TRIPS + 1):
            began = clock()
            main.publish(f"{topic}/echo")
            main.pump()
            if not echo.wait_for_messages(number, REPLY_SECONDS):
                facts.publish_works = False
                return
            durations.append(clock() - began)
            main.wait(main.all_confirmed, REPLY_SECONDS)
        facts.round_trip_ms = median(durations) * 1000


def _try_shared(
    main: _Client, options: MqttOptions, clock: Callable[[], float], topic: str, facts: BrokerFacts
) -> None:
    group_filter = share(main.client_id, f"{topic}/shared")
    with (
        _Client(options, f"{main.client_id}-a", clock).connected() as one,
        _Client(options, f"{main.client_id}-b", clock).connected() as other,
    ):
        members = (one, other)
        if not all(member.subscribe(group_filter) for member in members):
            facts.subscribe_refused = True
            return
        for _ in range(SHARED_MESSAGES):
            main.publish(f"{topic}/shared")
        main.wait(main.all_confirmed, REPLY_SECONDS)
        wait_for_all(members, lambda: sum(len(member.messages) for member in members) >= SHARED_MESSAGES)
        wait_for_all(members, lambda: False, QUIET_SECONDS)
        facts.shared_received = [len(member.messages) for member in members]


def _try_parking(
    main: _Client, options: MqttOptions, clock: Callable[[], float], topic: str, facts: BrokerFacts
) -> None:
    """Does the queue of an absent client hold what a burst of answers brings?"""
    client_id = f"{main.client_id}-parked"
    with _Client(options, client_id, clock, durable=True).connected() as away:
        away.subscribe(f"{topic}/parked")
    for _ in range(PARKED_MESSAGES):
        main.publish(f"{topic}/parked")
    main.wait(main.all_confirmed, 2 * REPLY_SECONDS)
    with _Client(options, client_id, clock, durable=True).connected() as back:
        seen = -1
        while seen < len(back.messages) < PARKED_MESSAGES:
            seen = len(back.messages)
            back.wait_for_messages(PARKED_MESSAGES, BUSY_SECONDS)
        facts.parked = len(back.messages)
    with _Client(options, client_id, clock).connected():
        pass  # a clean start without expiry ends the session


def _try_rights(
    main: _Client, options: MqttOptions, clock: Callable[[], float], needs: Needs, facts: BrokerFacts
) -> None:
    """Only what the broker tells: with 3.1.1 it acknowledges and drops, and Mosquitto lets everybody subscribe."""
    with _Client(options, f"{main.client_id}-rights", clock).connected() as node:
        listened = []
        for topic in needs.writes:
            node.publish(topic)
            node.wait(node.all_confirmed, REPLY_SECONDS)
            if node.receipt >= _REFUSED:
                facts.refused_topics.append(f"write {topic}")
            elif topic in needs.absent and node.receipt != _NO_MATCHING_SUBSCRIBERS:
                listened.append(topic)
        facts.listened = listened if options.version == "5" else None
        # In a group of our own, which takes nothing away from the nodes; it ends with the session.
        refused = [one for one in needs.reads if not node.subscribe(share(node.client_id, one))]
        facts.refused_topics += [f"read {one}" for one in refused]


def wait_for_all(clients: tuple[_Client, ...], condition: Callable[[], bool], seconds: float = REPLY_SECONDS) -> None:
    """Serve all clients in turn until the condition holds or the time is up."""
    turns = max(1, int(seconds / (0.01 * len(clients))))
    for _ in range(turns):
        if condition():
            return
        for client in clients:
            client.pump(0.01)


class _Client:
    """A paho client whose network loop runs only while we wait for something."""

    def __init__(
        self, options: MqttOptions, client_id: str, clock: Callable[[], float], *, durable: bool = False
    ) -> None:
        self.client_id = client_id
        self.messages: list[tuple[str, bytes]] = []
        self.properties: Any = None
        self.reason: int | None = None
        self._reason_text = ""
        self._options = options
        self._clock = clock
        self._durable = durable
        self.receipt = 0
        """The reason code of the last PUBACK."""
        self._unconfirmed = 0
        self._suback: int | None = None
        self._is_v5 = options.version == "5"
        version = MQTTProtocolVersion.MQTTv5 if self._is_v5 else MQTTProtocolVersion.MQTTv311
        clean = None if self._is_v5 else not durable
        self._paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=clean, protocol=version)
        self._paho.max_inflight_messages_set(0)
        self._paho.on_connect = self._on_connect
        self._paho.on_message = self._on_message
        self._paho.on_publish = self._on_publish
        self._paho.on_subscribe = self._on_subscribe
        if options.username is not None:
            self._paho.username_pw_set(options.username, options.password)
        if (context := tls_context(options)) is not None:
            self._paho.tls_set_context(context)

    @contextmanager
    def _session(self) -> Iterator[_Client]:
        try:
            self._connect()
            yield self
        finally:
            with contextlib.suppress(OSError, ValueError):
                self._paho.disconnect()
                self.pump()

    def connected(self) -> AbstractContextManager[_Client]:
        """The client with its connection, which ends with the block."""
        return self._session()

    def check_accepted(self) -> None:
        """Raise BrokerUnavailableError when CONNACK said no."""
        if self.reason is None:
            raise BrokerUnavailableError("the broker does not answer CONNECT")
        if self.reason:
            raise BrokerUnavailableError(f"the broker refuses us: {self._reason_text}")

    def subscribe(self, topic_filter: str) -> bool:
        """SUBSCRIBE with QoS 1; False when the broker refuses."""
        self._suback = None
        self._paho.subscribe(topic_filter, qos=1)
        self.wait(lambda: self._suback is not None, REPLY_SECONDS)
        return self._suback is not None and self._suback < _REFUSED

    def publish(self, topic: str) -> None:
        """PUBLISH a small message with QoS 1."""
        self._unconfirmed += 1
        self._paho.publish(topic, b"homing doctor", qos=1)

    def all_confirmed(self) -> bool:
        """True if every PUBACK is in."""
        return self._unconfirmed <= 0

    def pump(self, seconds: float = 0.0) -> None:
        """Read and write what there is."""
        self._paho.loop(seconds)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Pump until the condition holds; False when the time is up."""
        deadline = self._clock() + seconds
        while not condition():
            if self._clock() > deadline or self._paho.loop(0.02) not in (
                paho.MQTT_ERR_SUCCESS,
                paho.MQTT_ERR_AGAIN,
            ):
                return condition()
        return True

    def wait_for_messages(self, count: int, seconds: float) -> bool:
        """Pump until that many messages are here; False when the time is up."""
        return self.wait(lambda: len(self.messages) >= count, seconds)

    def _connect(self) -> None:
        options = self._options
        arguments: dict[str, Any] = {}
        if self._is_v5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho has no types here
            properties.SessionExpiryInterval = 30 if self._durable else 0
            arguments = {"clean_start": not self._durable, "properties": properties}
        self._paho.connect_timeout = REPLY_SECONDS
        try:
            self._paho.connect(options.host, options.port, keepalive=30, **arguments)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise BrokerUnavailableError(f"cannot connect to {options.host}:{options.port}: {reason}") from None
        self.wait(lambda: self.reason is not None, REPLY_SECONDS)

    def _on_connect(self, _client: object, _data: object, _flags: object, reason: Any, properties: Any) -> None:  # noqa: ANN401
        self._reason_text = str(reason)
        self.reason = reason.value
        self.properties = properties

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.messages.append((message.topic, bytes(message.payload)))

    def _on_publish(self, _client: object, _data: object, _mid: object, code: Any, _properties: object) -> None:  # noqa: ANN401
        self._unconfirmed -= 1
        self.receipt = code.value

    def _on_subscribe(self, _client: object, _data: object, _mid: object, codes: Any, _properties: object) -> None:  # noqa: ANN401
        self._suback = codes[0].value
