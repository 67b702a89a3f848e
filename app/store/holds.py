"""Held commands: who waits to be sent, and the one step that lets a node send one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import Command, WaitReason
from app.core.commands.routing import Follower, Outcome
from app.core.profiles.lanes import CommandLane
from app.store.rules import WITHOUT_END


class HeldEntry(NamedTuple):
    """A held command as lists have it. `until` is in microseconds on the store's clock."""

    device_id: str
    command_id: str
    until: int
    """The instant at which it ends unsent, if nothing else comes."""


@dataclass(frozen=True, slots=True)
class HeldEntries:
    """The commands that are held now, in the order of their ids within a device."""

    entries: Sequence[HeldEntry]
    unread: frozenset[int] = frozenset()
    """The partitions of which nothing is known, as the one of several servers that has them is away."""

    def __iter__(self) -> Iterator[HeldEntry]:
        return iter(self.entries)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A held command that the claimant may send, and nobody else. `trace` is the context of its trace."""

    command: Command
    trace: str | None
    record: tuple[bytes, ...] = ()
    """The record as the store has it, for `ServerStarts.reclaim`; empty where nothing is forgotten."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A claim came to a server of the store in another start of it, which may have forgotten what was claimed last."""

    start: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The reason why nobody may send a held command yet, and until when, in microseconds on the store's clock."""

    reason: WaitReason
    until: int

    @property
    def for_a_person(self) -> bool:
        """True if its lane stands until somebody has it go on."""
        return self.reason is WaitReason.LANE and self.until >= WITHOUT_END


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a decision about a held command: `won` tells whether it counts. `outcome` is that of a refusal."""

    won: bool
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class LaneStop:
    """The reason why those that wait in a lane wait for a person: a command whose end was no success, and its instant.

    `at` is in microseconds on the store's clock.
    """

    at: int
    command_id: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The result of a person's word about a lane of a device: whether it stood, and who is the next in line there."""

    stop: LaneStop | None
    follower: Follower | None = None


@dataclass(frozen=True, slots=True)
class LaneOccupancy:
    """A lane of a device as it is now: how many have a place, in flight or at rest, and who waits, first come first.

    `until` is when its pace allows the next command, or a lane that it excludes may be empty (µs); 0 if both are so.
    """

    in_flight: int
    waiting: tuple[str, ...]
    until: int = 0
    stop: LaneStop | None = None

    def has_room(self, lane: CommandLane) -> bool:
        """True if a command that comes now is sent at once."""
        closed = self.until or self.stop is not None or self.in_flight >= lane.width
        return not closed and not (lane.order.queues and self.waiting)


class HoldStore(Protocol):
    """Every step is atomic for its command and safe to repeat; StoreUnavailableError means that it may have happened.

    A `token` is a text that no other attempt of any node has. It claims once.
    """

    async def held(self) -> HeldEntries:
        """The commands that are held now. StoreUnavailableError when no server tells anything of them."""

    async def last_held(self) -> str:
        """A note that is another one after each command that was held, and after each claim that was undone.

        It is one small step, so that whoever waits for held commands reads `held` only when there may be new ones. A
        note is missing where the store fails at that moment, or forgets: `held` has to be read now and then anyway.
        """

    async def lane_now(self, device_id: str, lane: CommandLane) -> LaneOccupancy:
        """Return who is in a lane of a device: what `register` would find there. It changes nothing."""

    async def claim(
        self, command_id: str, node_id: str, token: str, starts: Collection[str] = ()
    ) -> Claimed | Waits | Restarted | None:
        """Take a held command to send it: it is pending from now on, its home is the node, and its timeout begins.

        Topics and values by which it is answered are in place then. None when it is not held any more, when its hold
        has ended, or when it cannot be read. Waits when its time has not come, or no second person has approved it.
        DeviceBusyError while another command keeps it from its topic. With `starts`, as `ServerStarts` has them, it is
        claimed in no other one.
        """

    async def pass_on(self, command_id: str) -> Follower | None:
        """Note that the broker has a command, and free its place in a lane that waits for no more than that.

        Return who stands first in line there; None where nobody does, or where the lane waits for the outcome.
        """

    async def resume(self, device_id: str, lane: str, stopped_by: str) -> Resumed:
        """Have a lane of a device go on that stands since the end of this command.

        Nothing happens to a lane that does not stand, or that another command has stopped since: a person has judged
        that one alone.
        """

    async def decide(self, command_id: str, decision: ApprovalDecision, finisher: str) -> Decided:
        """Note the decision of a second person about a held command; of several that come at once one counts.

        One that is approved stands in line behind those that are there, and may be claimed from then on. One that is
        refused is CANCELLED, and its waiting nodes but `finisher` are woken. It does not count where a command waits
        for no second person, or not any more: another decision, its end, or the end of its time came first.
        """

    async def give_back(self, command_id: str, token: str) -> bool:
        """Undo a claim, of which the claimant knows that nobody got the command; whether it is held now.

        Nothing that it was waiting for finds it any more. A claim with this token that comes later is void. In a lane
        in which only the last one waits it is CANCELLED if another one waits there by now; its waiting nodes are woken.
        """
