"""Devices: they answer at once, late, twice, step by step or never, and repeat an answer until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import orjson

from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication, Receipt
from app.mqtt.base import InboundDelivery, Puback, Subscription
from homing_rig.chaos.history import AnswerAcked, Answered, Executed
from homing_rig.simulation.broker import SimBroker
from homing_rig.simulation.callers import PROBE
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.mqtt import SimMqttClient
from homing_rig.simulation.network import Link
from homing_rig.simulation.node import REPEATABLE
from homing_rig.simulation.recording import Recording
from homing_simulator.families import ECHO, FAMILIES, Request

RESEND_SECONDS: Final = 0.5
GIVE_UP_SECONDS: Final = 10.0
SPEAKS_SECONDS: Final = 0.5
"""After so long a device that has come says its first word."""
NOBODYS_ID: Final = f"000-{'0' * 26}"
"""The id of a command that nobody has sent."""
_HOMING: Final = FAMILIES["homing"]


class SimDevice:
    """One device of the homing profile. `make_chance` decides what it does with each command, by its nonce."""

    def __init__(
        self,
        device_id: str,
        loop: SimLoop,
        broker: SimBroker,
        way: Link,
        recording: Recording,
        make_chance: Callable[[str], Random],
        timeout: float,
    ) -> None:
        self.device_id: Final = device_id
        self.lane: Final = Lane(device_id)
        self.way: Final = way
        self.open = 0
        """Answers that wait for their time, or for PUBACK."""
        self._loop = loop
        self._recording = recording
        self._make_chance = make_chance
        self._timeout = timeout
        self._seen: Counter[str] = Counter()
        self._client = self.lane.context.copy().run(
            SimMqttClient, loop, broker, way, device_id, Counter(), make_chance(device_id), receive_maximum=20
        )

    def start(self, *, late: bool = False) -> None:
        """Connect; `late`, and say something that is no answer, so that it is known to be there."""
        if late:
            self._loop.call_later(SPEAKS_SECONDS, self._speak, context=self.lane.context)
        topics = [Subscription(one) for one in _HOMING.command_topics(self.device_id)]
        work = self._client.start(topics, self._receive)
        _begun = self._loop.create_task(work, context=self.lane.context.copy())

    def _speak(self) -> None:
        word = orjson.dumps({"id": NOBODYS_ID, "status": "succeeded", "result": {}})
        with suppress(BrokerUnavailableError):
            _nobody_waits = self._client.publish(Publication(f"homing/{self.device_id}/response", word))

    @property
    def connected(self) -> bool:
        """True if it is connected, as far as it knows."""
        return self._client.connected

    def publish(self, publication: Publication) -> Puback:
        """As `MqttClient.publish`."""
        return self._client.publish(publication)

    def _receive(self, delivery: InboundDelivery) -> None:
        request = _HOMING.read(delivery.message)
        nonce = request.params.get(ECHO) if isinstance(request.params, dict) else None
        number = self._seen[request.command_id]
        self._seen[request.command_id] += 1
        again = delivery.message.redelivered or (request.method == REPEATABLE and number > 0)
        self._recording.write(
            Executed(
                at=self._loop.time(),
                device=self.device_id,
                command_id=request.command_id,
                nonce=nonce,
                dup=again or None,
            )
        )
        delivery.acknowledge()
        for delay, publication, state in self._plan(request, self._make_chance(f"{self.device_id}/{nonce}/{number}")):
            self.open += 1
            self._loop.call_later(delay, self._answer, request, publication, state, self._loop.time() + delay)

    def _plan(self, request: Request, chance: Random) -> list[tuple[float, Publication, str]]:
        """The instants at which it says things."""
        (done,) = _HOMING.answers(request, 0.0)
        if isinstance(request.params, dict) and str(request.params.get(ECHO)).startswith(PROBE):
            return [(0.0, done, "succeeded")]
        kind, soon = chance.random(), chance.expovariate(12.0)
        if kind < 0.05:  # noqa: PLR2004
            return []
        if kind < 0.11:  # noqa: PLR2004
            return [(self._timeout + chance.uniform(-0.2, 1.0), done, "succeeded")]
        if kind < 0.18:  # noqa: PLR2004
            return [(soon, done, "succeeded"), (soon + chance.expovariate(5.0), done, "succeeded")]
        if kind < 0.26 and (refusal := _HOMING.refusal(request, 0.0)) is not None:  # noqa: PLR2004
            return [(soon, refusal, "failed")]
        if kind < 0.32:  # noqa: PLR2004
            progress = request.publication({"id": request.command_id, "status": "running", "progress": {"percent": 50}})
            return [(soon / 2, progress, "running"), (soon, done, "succeeded")]
        return [(soon, done, "succeeded")]

    def _answer(self, request: Request, publication: Publication, state: str, since: float) -> None:
        try:
            puback = self._client.publish(publication)
        except BrokerUnavailableError:
            self._again(request, publication, state, since)
            return
        sequence = next(self._recording.sequences)
        command_id = request.command_id
        self._recording.write(
            Answered(at=self._loop.time(), device=self.device_id, command_id=command_id, sequence=sequence, state=state)
        )

        def settled(puback: asyncio.Future[Receipt]) -> None:
            if puback.cancelled():
                self.open -= 1
            elif puback.exception() is None and puback.result() is not Receipt.UNMATCHED:
                self.open -= 1
                self._recording.write(
                    AnswerAcked(at=self._loop.time(), device=self.device_id, command_id=command_id, sequence=sequence)
                )
            else:
                self._again(request, publication, state, since)

        puback.add_done_callback(settled)

    def _again(self, request: Request, publication: Publication, state: str, since: float) -> None:
        if self._loop.time() - since < GIVE_UP_SECONDS:
            self._loop.call_later(RESEND_SECONDS, self._answer, request, publication, state, since)
        else:
            self.open -= 1
