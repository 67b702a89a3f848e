"""Canaries: messages that a node sends to itself over the response path, to see that responses come home at all.

A shared subscription gives each message to one member, and a broker tells nobody who the members are. A session that
is forgotten, a stranger who has joined the group, a broker that knows no shared subscriptions: all of them take
responses away without a word, and each PUBACK says that all is well. Only a message that does not come back tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_random_exponential

from app.cluster.wakeups import WakeUps
from app.core.clock import Clock
from app.core.errors import InvalidInputError, PublishRefusedError, UnavailableError
from app.core.identifiers import validate_node_id
from app.core.messages import Publication, Receipt
from app.mqtt.base import MqttClient
from app.runtime.telemetry import Counters

EVERY_SECONDS: Final = 0.5
"""The time after which another canary is sent through each subscription."""
MOST_A_SECOND: Final = 20
"""The canaries in a second: with many subscriptions each has its turn less often."""
CALM_SECONDS: Final = 2.0
"""A broker in this node writes each canary to the disk, and nothing is between the two, so they come less often."""
SILENT_SECONDS: Final = 3.0
"""A broker that acknowledges no canary for so long is slow, or frozen: its connections tell of that much later."""
PATIENCE_SECONDS: Final = 5.0
"""A canary that has not come back by then is lost."""
MEMORY_SECONDS: Final = 10.0
"""The time for which a loss counts."""
TOO_MANY: Final = 2
"""This number of losses within that time is no accident."""
EXCUSED_SECONDS: Final = 30.0
"""The time for which a known trouble, as a frozen node, explains what is missing."""
LATE_SECONDS: Final = 1.0
"""A round that comes so much too late says that this process did not run, so that it knows nothing of its canaries."""
MOST_CARRIED: Final = 256
"""Canaries of other nodes on their way from here."""


class _Flying(NamedTuple):
    topic: str
    sent_at: float
    acknowledged_at: float | None
    """The instant at which the broker took it: before that nothing can be missing."""


class Canary:
    """One per node. `topics` are its own, one in each subscription; `strained` tells of troubles that others mend."""

    def __init__(
        self,
        *,
        mqtt: MqttClient,
        cluster: WakeUps,
        node_id: str,
        topics: Sequence[str],
        strained: Callable[[], bool],
        new_secret: Callable[[], str],
        clock: Clock,
        counters: Counters,
        every_seconds: float = EVERY_SECONDS,
        most_carried: int = MOST_CARRIED,
    ) -> None:
        self._mqtt = mqtt
        self._cluster = cluster
        self._node_id = node_id
        self._topics = tuple(topics)
        self._strains = [strained]
        self._new_secret = new_secret
        self._clock = clock
        self._counters = counters
        self._most_carried = most_carried
        turns = len(self._topics) / MOST_A_SECOND
        self._interval = max(every_seconds, turns)
        self._first_interval = max(EVERY_SECONDS, turns)
        self._flying: dict[str, _Flying] = {}
        self._unproven = set(self._topics)
        self._unmatched: set[str] = set()
        self._lost: dict[str, _Flying] = {}
        self._strained_since: float | None = None
        self._due = 0.0
        self._resting = False
        self._carried: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def strained_by(self, strained: Callable[[], bool]) -> None:
        """Ask this, too, whether there are troubles that others mend."""
        self._strains.append(strained)

    @property
    def topics(self) -> Sequence[str]:
        """The topics to which the canaries of all nodes are sent."""
        return self._topics

    @property
    def contradicted(self) -> bool:
        """True if the broker says that nobody is subscribed to a topic to which this node is: do not believe it."""
        return bool(self._unmatched)

    @property
    def health(self) -> str:
        """`ok`, or what is wrong. A missing connection explains everything, and is said elsewhere."""
        if not self._mqtt.connected:
            return "ok"
        lost = self._recently_lost()
        if len(lost) >= TOO_MANY:
            where = ", ".join(sorted({one.topic for one in lost}))
            return (
                f"{len(lost)} messages of this node to itself did not come back ({where}): somebody else takes "
                "responses away, the broker does not share subscriptions, or they come too slowly"
            )
        if self._unproven:
            where = ", ".join(sorted(self._unproven))
            return (
                f"no message of this node to itself has come back yet ({where}): responses may not arrive, or the "
                "broker does not let this node write there, which it does not say to clients of MQTT 3.1.1"
            )
        silence = self._silence()
        if silence >= SILENT_SECONDS:
            return f"ok, but the broker has acknowledged no message of this node to itself for {silence:.0f} s"
        return "ok"

    async def run(self) -> None:
        """Send and judge until cancelled."""
        while True:
            await self._mqtt.wait_connected()
            self.look()
            await asyncio.sleep(self._first_interval if self._unproven else self._interval)

    def rest(self) -> None:
        """Send no more: this node is about to unsubscribe."""
        self._resting = True
        self.forget()

    def begin_again(self) -> None:
        """Start from nothing, with another session."""
        self._unproven = set(self._topics)
        self._unmatched.clear()
        self._lost.clear()
        self.forget()

    def forget(self) -> None:
        """Judge nothing that was sent so far: what carries canaries home was interrupted."""
        self._flying.clear()

    def look(self) -> None:
        """One round: judge those that are out, then send the next."""
        now = self._clock.monotonic()
        if now > self._due + LATE_SECONDS or not self._cluster.listening or self._excused(now):
            self.forget()
        self._due = now + self._interval
        for secret, flying in tuple(self._flying.items()):
            if flying.acknowledged_at is not None and now - flying.acknowledged_at >= PATIENCE_SECONDS:
                self._miss(secret, self._flying.pop(secret))
        if not self._resting and self._cluster.listening:
            for topic in self._topics:
                self._send(topic)

    def arrived(self, payload: bytes) -> None:
        """Take a canary from the broker: ours, or one to carry to the node that sent it. Rubbish is counted."""
        try:
            node_id, secret = payload.decode("ascii").split(" ")
            validate_node_id(node_id)
        except (ValueError, InvalidInputError):
            self._counters["drop.bad_canary"] += 1
            return
        if node_id == self._node_id:
            self.returned(secret)
        elif len(self._carried) < self._most_carried:
            task = asyncio.get_running_loop().create_task(self._carry(node_id, secret), name="canary")
            self._carried.add(task)
            task.add_done_callback(self._carried.discard)
        else:
            self._counters["drop.canary"] += 1

    def returned(self, secret: str) -> None:
        """Note that a canary has come home; one of another cluster, or one that was forgotten, changes nothing."""
        flying = self._flying.pop(secret, None)
        late = self._lost.pop(secret, None)
        if flying is not None:
            self._counters["canary.returned"] += 1
            self._unproven.discard(flying.topic)
        elif late is not None:
            self._counters["canary.late"] += 1

    def _send(self, topic: str) -> None:
        secret = self._new_secret()

        def settled(puback: asyncio.Future[Receipt]) -> None:
            error = None if puback.cancelled() else puback.exception()
            if error is None and not puback.cancelled():
                self._note(topic, puback.result())  # also of one that has come home before its PUBACK
            if secret not in self._flying:
                return
            if error is None and not puback.cancelled():
                self._flying[secret] = self._flying[secret]._replace(acknowledged_at=self._clock.monotonic())
                return
            del self._flying[secret]
            if isinstance(error, PublishRefusedError):
                self._refused(topic)

        try:
            puback = self._mqtt.publish(Publication(topic, f"{self._node_id} {secret}".encode()))
        except UnavailableError:
            return
        self._counters["canary.sent"] += 1
        self._flying[secret] = _Flying(topic, self._clock.monotonic(), None)
        puback.add_done_callback(settled)

    def _note(self, topic: str, receipt: Receipt) -> None:
        if receipt is Receipt.UNMATCHED:
            self._unmatched.add(topic)
        else:
            self._unmatched.discard(topic)

    def _refused(self, topic: str) -> None:
        """The broker does not let this node write there: nothing is known of that subscription."""
        self._unproven.discard(topic)
        self._counters["canary.refused"] += 1
        if self._counters["canary.refused"] == 1:
            self._log.warning("canary_refused", topic=topic, needed="the right to publish there, see deploy/mosquitto")

    def _miss(self, secret: str, flying: _Flying) -> None:
        self._counters["canary.lost"] += 1
        self._lost[secret] = flying
        if len(self._recently_lost()) == TOO_MANY:
            self._log.error("canaries_lost", topic=flying.topic)

    def _silence(self) -> float:
        """Return for how long the canary that was sent first waits for its PUBACK."""
        waiting = (one.sent_at for one in self._flying.values() if one.acknowledged_at is None)
        first = next(waiting, None)
        return 0.0 if first is None else self._clock.monotonic() - first

    def _recently_lost(self) -> list[_Flying]:
        since = self._clock.monotonic() - PATIENCE_SECONDS - MEMORY_SECONDS
        for secret, flying in tuple(self._lost.items()):
            if (flying.acknowledged_at or 0) >= since:
                break
            del self._lost[secret]
        return list(self._lost.values())

    def _excused(self, now: float) -> bool:
        if not any(strained() for strained in self._strains):
            self._strained_since = None
            return False
        if self._strained_since is None:
            self._strained_since = now
        return now - self._strained_since < EXCUSED_SECONDS

    async def _carry(self, node_id: str, secret: str) -> None:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(UnavailableError),
                wait=wait_random_exponential(multiplier=0.1, max=1),
                stop=stop_after_delay(PATIENCE_SECONDS / 2),
            ):
                with attempt:
                    await self._cluster.carry(node_id, secret)
        except RetryError:
            self._counters["drop.canary"] += 1
