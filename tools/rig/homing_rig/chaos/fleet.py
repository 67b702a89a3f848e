"""Devices that keep a record: what they executed, what they answered, and what of it the broker acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from app.core.clock import Clock
from app.core.errors import BrokerUnavailableError, UnavailableError
from app.core.messages import Publication, Receipt
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MAX_SEND_WINDOW
from app.mqtt.paho import PahoMqttClient
from homing_rig.chaos.history import AnswerAcked, Answered, Executed
from homing_rig.chaos.ordered import ORDERED
from homing_rig.chaos.recorder import Recorder
from homing_rig.chaos.servers import START_SECONDS
from homing_rig.chaos.strangers import login
from homing_rig.rights import DEVICE_USER, RIG_USER
from homing_simulator.families import ECHO, FAMILIES, Family, Request

RESEND_SECONDS: Final = 0.1
"""A device sends again what the broker did not acknowledge."""
GIVE_UP_SECONDS: Final = 60.0
CHUNK: Final = 50
"""The answers that are given in a row."""

Plan = Callable[[Request, random.Random], Sequence[float] | None]
"""Returns the seconds after which a device answers, once per entry; none for a silent device; None to hold the answer
back."""


def at_once(_request: Request, _rng: random.Random) -> Sequence[float]:
    """Answer within the callback."""
    return (0.0,)


def between(low: float, high: float) -> Plan:
    """Answer after a delay of that many seconds."""
    return lambda _request, rng: (rng.uniform(low, high),)


def hold(_request: Request, _rng: random.Random) -> None:
    """Answer when the fleet is told to."""


@dataclass(slots=True)
class Fleet:
    """`devices` spread over `sessions` connections; every device has its own topics."""

    port: int
    devices: Sequence[str]
    plan: Plan
    recorder: Recorder
    clock: Clock
    seed: int
    sessions: int = 4
    profile: str = "homing"
    counts: Counter[str] = field(default_factory=Counter)
    held: list[tuple[PahoMqttClient, Request]] = field(default_factory=list)
    executions: Counter[str] = field(default_factory=Counter)
    """The number of times that each command id was received."""
    got: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    """The instant at which each device got each command id for the first time."""
    clients: list[PahoMqttClient] = field(default_factory=list)
    _timers: set[asyncio.TimerHandle] = field(default_factory=set)
    _counters: dict[str, Counter[str]] = field(default_factory=dict)
    _first_seen: dict[str, int] = field(default_factory=dict)
    """Command id -> how often its session was cut when it came first: MQTT redelivers only after another cut."""
    _unacked: int = 0

    @property
    def open_answers(self) -> int:
        """Answers that wait for their time, or for PUBACK."""
        return len(self._timers) + self._unacked

    async def start(self) -> None:
        """Connect all sessions; TimeoutError when the broker does not take them."""
        family = self._family
        for number in range(min(self.sessions, len(self.devices))):
            topics = [
                Subscription(topic)
                for one in self.devices[number :: self.sessions]
                for topic in family.command_topics(one)
            ]
            options = replace(
                login(DEVICE_USER, f"{self.profile}-fleet-{number}", self.port),
                receive_maximum=5000,
                send_window=MAX_SEND_WINDOW,
            )
            counters = self._counters[options.client_id] = Counter()
            client = PahoMqttClient(options, counters, random.Random(f"{self.seed} {number}"))
            self.clients.append(client)
            await client.start(topics, partial(self._receive, client))
        async with asyncio.timeout(START_SECONDS):
            for client in self.clients:
                await client.wait_connected()

    async def stop(self) -> None:
        """Disconnect; answers that wait are never sent."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*(client.stop() for client in self.clients))

    async def release(self, rng: random.Random | None = None) -> None:
        """Answer everything that was held back, in this order or shuffled, and let the callers live meanwhile."""
        held, self.held = self.held, []
        if rng is not None:
            rng.shuffle(held)
        for number, (client, request) in enumerate(held):
            self._answer(client, request)
            if number % CHUNK == 0:
                await asyncio.sleep(0)

    @property
    def _family(self) -> Family:
        return ORDERED if self.profile == "ordered" else FAMILIES[self.profile]

    def _receive(self, client: PahoMqttClient, delivery: InboundDelivery) -> None:
        request = self._family.read(delivery.message)
        nonce = _nonce(request)
        again = self.executions[request.command_id]
        counters = self._counters[client.client_id]
        breaks = counters["connection_lost"] + counters["connection_failed"]
        redelivered = breaks > self._first_seen.setdefault(request.command_id, breaks)
        self.executions[request.command_id] += 1
        if not again:
            self.got[request.device_id].append((self.recorder.now(), request.command_id))
        if request.deadline is not None and self.clock.wall() > request.deadline:
            self.counts["late"] += 1
        self.recorder.write(
            Executed(
                at=self.recorder.now(),
                device=request.device_id,
                command_id=request.command_id,
                nonce=nonce,
                dup=True if redelivered else None,
            )
        )
        delivery.acknowledge()
        delays = self.plan(request, random.Random(f"{self.seed} {nonce} {again}"))
        if delays is None:
            self.held.append((client, request))
            return
        for delay in delays:
            if delay <= 0:
                self._answer(client, request)
            else:
                self._later(delay, client, request)

    def _later(self, delay: float, client: PahoMqttClient, request: Request, since: float | None = None) -> None:
        def due() -> None:
            self._timers.discard(timer)
            self._answer(client, request, since)

        timer = asyncio.get_running_loop().call_later(delay, due)
        self._timers.add(timer)

    def _answer(self, client: PahoMqttClient, request: Request, since: float | None = None) -> None:
        now = asyncio.get_running_loop().time()
        since = now if since is None else since
        publication = self._reply(request)
        try:
            puback = client.publish(publication)
        except BrokerUnavailableError:
            self._again(client, request, since)
            return
        self.counts["answered"] += 1
        self._unacked += 1
        device, command_id, sequence = request.device_id, request.command_id, next(self.recorder.sequences)
        self.recorder.write(Answered(at=self.recorder.now(), device=device, command_id=command_id, sequence=sequence))

        def settled(puback: asyncio.Future[Receipt]) -> None:
            self._unacked -= 1
            if puback.cancelled():
                return
            if puback.exception() is None and puback.result() is Receipt.UNMATCHED:
                # Mosquitto 2.0.11 forgets shared subscriptions when it restarts, and says so until a node is back.
                self.counts["unmatched"] += 1
                self._again(client, request, since)
            elif puback.exception() is None:
                self.counts["acked"] += 1
                now = self.recorder.now()
                self.recorder.write(AnswerAcked(at=now, device=device, command_id=command_id, sequence=sequence))
            elif isinstance(puback.exception(), UnavailableError):
                self._again(client, request, since)

        puback.add_done_callback(settled)

    def _again(self, client: PahoMqttClient, request: Request, since: float) -> None:
        if asyncio.get_running_loop().time() - since < GIVE_UP_SECONDS:
            self._later(RESEND_SECONDS, client, request, since)
        else:
            self.counts["given_up"] += 1

    def _reply(self, request: Request) -> Publication:
        return self._family.answers(request, self.clock.wall())[0]


def _nonce(request: Request) -> str | None:
    return request.params.get(ECHO) if isinstance(request.params, dict) else None


_DROPPED: Final = "$SYS/broker/publish/messages/dropped"
_SHARED: Final = "$SYS/broker/shared_subscriptions/count"
_KEPT: Final = "$SYS/broker/store/messages/count"


@dataclass(slots=True)
class Witness:
    """Listens to the counts that the broker tells of itself."""

    port: int
    dropped: int = 0
    """`$SYS/broker/publish/messages/dropped`."""
    shared: int = 0
    """`$SYS/broker/shared_subscriptions/count`: also of sessions whose client is away."""
    kept: int = 0
    """`$SYS/broker/store/messages/count`, at most: what it keeps for those who have not acknowledged it."""
    rounds: int = 0
    _told: asyncio.Event = field(default_factory=asyncio.Event)
    _client: PahoMqttClient | None = None

    async def start(self) -> None:
        """Begin to listen; TimeoutError when the broker does not tell: nothing dropped is then no good news."""
        self._client = PahoMqttClient(login(RIG_USER, "witness", self.port), Counter())
        await self._client.start([Subscription(one, 0) for one in (_DROPPED, _SHARED, _KEPT)], self._hear)
        async with asyncio.timeout(START_SECONDS):
            await self._told.wait()

    async def stop(self) -> None:
        """Stop listening."""
        if self._client is not None:
            await self._client.stop()

    def _hear(self, delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        with suppress(ValueError):
            self._note(delivery.message.topic, int(delivery.message.payload))

    def _note(self, topic: str, count: int) -> None:
        if topic == _SHARED:
            self.shared = count
        elif topic == _KEPT:
            self.kept = max(self.kept, count)
        else:
            self.dropped = count
            self.rounds += 1
            self._told.set()
