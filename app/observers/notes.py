"""A node's memory of its recent past, for those who ask what became of a command.

It costs a plain command nothing but a look: only what ended badly or took long is kept, and of each device where it was
heard last. All of it is in memory and bounded, and gone with the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.clock import Clock, wall_us
from app.core.commands.callback import Answer
from app.core.commands.command import CommandState
from app.core.commands.diagnosis import DeviceSighting, Hop, NodeReport
from app.core.commands.misses import MOST_GOT, MissedMessage, Target, compare, plain
from app.core.messages import Receipt

MOST_COMMANDS: Final = 5_000
MOST_MISSES: Final = 1_000
MOST_DEVICES: Final = 10_000
MOST_PROFILES: Final = 8
MOST_TOPIC: Final = 256
MOST_DEVICE_ID: Final = 128
MOST_TOLD: Final = 20
"""The number of misses that are told of one command."""
LONG_SECONDS: Final = 1.0
"""The course of commands that took longer is noted."""


class Notes(Observer):
    """`node_id` is this node."""

    def __init__(self, node_id: str, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self.open_command: Callable[[str], Pending | None] = lambda _command_id: None
        """Finds a command that is open here; there are such only once there is an observer of them."""
        self._hops: dict[str, Sequence[Hop]] = {}
        self._misses: deque[MissedMessage] = deque(maxlen=MOST_MISSES)
        self._heard: dict[str, dict[str, tuple[float, str]]] = {}

    def closed(self, pending: Pending) -> None:
        """A command of this node has its outcome."""
        if pending.state is CommandState.SUCCEEDED and (pending.closed_at or 0.0) - pending.opened_at < LONG_SECONDS:
            return
        self._hops[pending.command_id] = hops_of(pending)
        if len(self._hops) > MOST_COMMANDS:
            del self._hops[next(iter(self._hops))]

    def heard(self, device_id: str, profile: str, topic: str) -> None:
        """A device said something."""
        profiles = self._heard.get(device_id)
        if profiles is None:
            if len(device_id) > MOST_DEVICE_ID:
                return
            if len(self._heard) >= MOST_DEVICES:
                del self._heard[next(iter(self._heard))]
            profiles = self._heard[device_id] = {}
        if profile in profiles or len(profiles) < MOST_PROFILES:
            profiles[profile] = self._clock.wall(), topic if len(topic) <= MOST_TOPIC else topic[:MOST_TOPIC]

    def missed(self, reason: str, answer: Answer) -> None:
        """A response answered no command."""
        self._miss(reason, plain(answer.topic), answer.value, answer.device_id)

    def dropped(
        self,
        reason: str,
        *,
        topic: str | None = None,
        device_id: str | None = None,
        command_id: str | None = None,
        profile: str | None = None,
    ) -> None:
        """A message could not be read."""
        if topic is not None:
            self._miss(reason, topic, command_id or "", device_id or "")

    def elsewhere(self, device_id: str, profile: str) -> str | None:
        """On topics of which other profile this node heard a device last, where it heard it on none of this one."""
        profiles = self._heard.get(device_id)
        if not profiles or profile in profiles:
            return None
        return max(profiles, key=lambda name: profiles[name][0])

    def last_heard(self, device_id: str) -> DeviceSighting | None:
        """Return where this node heard a device last."""
        return max(self._where(device_id), key=lambda one: one.at, default=None)

    def about(self, command_id: str, target: Target) -> NodeReport:
        """Return what is known here of a command and of its device."""
        pending = self.open_command(command_id)
        hops = self._hops.get(command_id, ()) if pending is None or not pending.registered else hops_of(pending)
        return NodeReport(self._node_id, hops, self._near(command_id, target), self._where(target.device))

    def _near(self, command_id: str, target: Target) -> Sequence[MissedMessage]:
        """The misses that have to do with the command, the nearest first."""
        compared = [compare(one, target) for one in self._misses]
        fitting = [
            one for one in compared if one.concerns(command_id) and (one.same_topic or one.same_id or one.like_id)
        ]
        return [one.miss for one in sorted(fitting, key=lambda one: one.score, reverse=True)[:MOST_TOLD]]

    def _where(self, device: str) -> Sequence[DeviceSighting]:
        found: Mapping[str, tuple[float, str]] = self._heard.get(device, {})
        return [
            DeviceSighting(round(at * 1_000_000), self._node_id, profile, topic)
            for profile, (at, topic) in found.items()
        ]

    def _miss(self, reason: str, topic: str, got: str, device: str) -> None:
        at = wall_us(self._clock)
        self._misses.append(
            MissedMessage(at, self._node_id, topic[:MOST_TOPIC], reason, got[:MOST_GOT], device[:MOST_DEVICE_ID])
        )


def hops_of(pending: Pending) -> Sequence[Hop]:
    """The steps of a command, as far as it has come."""
    at = pending.store_us
    hops = []
    if pending.published_at is not None:
        hops.append(Hop(at(pending.published_at), "published", size=pending.request_bytes))
    puback = pending.puback
    if puback is not None and puback.done() and not puback.cancelled():
        failure = puback.exception()
        if failure is not None:
            hops.append(Hop(at(pending.closed_at), "publish_failed", str(failure)))
        elif puback.result() is not Receipt.UNACKNOWLEDGED:
            reason = "nobody is subscribed (0x10)" if puback.result() is Receipt.UNMATCHED else ""
            ended = None if pending.closed_at is None else pending.finished_us  # by the PUBACK, where it is not noted
            hops.append(Hop(at(pending.acknowledged_at) or ended, "acknowledged", reason))
    if pending.progressed_at is not None:
        hops.append(Hop(at(pending.progressed_at), "progressed"))
    if pending.delivered_at is not None:
        hops.append(Hop(at(pending.delivered_at), "delivered"))
    return hops
