"""A callback: what is registered for a command, and what of a device may match it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from app.core.commands.approval import Approval
from app.core.commands.command import Command, CommandState, Hold, IfOffline
from app.core.profiles.correlation import Correlation
from app.core.profiles.echoes import HeardState
from app.core.profiles.lanes import CommandLane
from app.core.values import value


@value
class Expectation:
    """One place where a response may arrive. `value` is set for Correlation.VALUE only."""

    topic: str
    correlation: Correlation
    value: str = ""


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """The time for which a command may be held, and the caller who asked for it.

    It is not sent before `not_before`, in microseconds since 1970, where there is one.
    """

    lasts: timedelta
    who: str = ""
    not_before: int | None = None
    only_if_taken: bool = False
    """True if the command is sent at once if its lane has room."""
    approval: timedelta | None = None
    """The time within which a second person has to approve it; None if it needs nobody."""
    replaces: str = ""
    """The key of what it takes the place of, see `Hold`."""
    run: str = ""
    """The fleet run that it belongs to; empty if to none."""

    def begun(self, created_at: int, timeout: timedelta) -> Hold:
        """The hold of a command that is registered at that instant (µs)."""
        microsecond = timedelta(microseconds=1)
        approval = None if self.approval is None else Approval(created_at + self.approval // microsecond)
        until = created_at + self.lasts // microsecond
        return Hold(
            *(until, timeout, self.who),
            not_before=self.not_before,
            approval=approval,
            replaces=self.replaces,
            run=self.run,
        )


@value
class Registration:
    """All that the store needs in order to recognise the responses of one command.

    `expectations` has one to four entries whose topics all belong to `device_id`. `quarantine` keeps a topic with
    Correlation.ORDER occupied after a timeout or cancellation, so that a stale response cannot complete the next
    command. `fingerprint` identifies the body for the comparison under an idempotency key.
    `trace` is the context of the command's trace (W3C traceparent), where it is traced. `notify` are the ids of the
    webhook endpoints that are told of its outcome.
    """

    command_id: str
    device_id: str
    method: str
    params: bytes
    profile: str
    home_node: str
    expectations: tuple[Expectation, ...]
    timeout: timedelta
    retention: timedelta
    quarantine: timedelta = timedelta()
    idempotency_key: str | None = None
    fingerprint: str = ""
    trace: str | None = None
    if_offline: IfOffline = IfOffline.SEND
    notify: tuple[str, ...] = ()
    hold: HoldRequest | None = None
    """The hold that it begins with, where it is not sent at once."""
    lane: CommandLane | None = None
    """The lane of its device through which it goes."""
    by_homing: bool = False
    """True if no caller asked for it: a probe asks a device for its state."""

    @property
    def begins_held(self) -> bool:
        """True if it waits whether or not its lane has room."""
        return self.hold is not None and not self.hold.only_if_taken

    def longest(self, *, held: bool) -> timedelta:
        """The time from its registration to the latest deadline that is possible."""
        return self.timeout if self.hold is None or not held else self.hold.lasts + self.timeout

    def command(self, created_at: int, deadline: int, *, held: bool = False) -> Command:
        """The command as it begins; instants in microseconds since the epoch on the store's clock."""
        return Command(
            id=self.command_id,
            device_id=self.device_id,
            method=self.method,
            params=self.params,
            profile=self.profile,
            state=CommandState.HELD if held else CommandState.PENDING,
            home_node=self.home_node,
            created_at=created_at,
            deadline=deadline,
            hold=self.hold.begun(created_at, self.timeout) if held and self.hold is not None else None,
            one_way=not self.expectations,
            if_offline=self.if_offline,
            notify=self.notify,
            lane=self.lane,
            by_homing=self.by_homing,
        )


@dataclass(slots=True)
class Answer:
    """A response as its profile reads it: where it came from, which command it names, what it says.

    `state` is RUNNING for progress, else SUCCEEDED or FAILED. `result` and `error` are JSON texts; for progress,
    `result` is the progress report. `value` is the command id for Correlation.ID and empty for Correlation.ORDER; for
    Correlation.ECHO it is empty until a command was found that `heard` is an echo of, and then its id.
    `received_at` (microseconds on the store's clock) is None where nobody wants to know; `size` is the payload's.
    `trace` is the context that the device echoed. `profile` is the one that reads it so: it answers commands of that
    profile only ('' is any). `others` are the readings of further profiles that have the same topic.
    """

    topic: str
    device_id: str
    correlation: Correlation
    value: str
    state: CommandState
    result: bytes | None = None
    error: bytes | None = None
    received_at: int | None = None
    size: int = 0
    trace: str | None = None
    profile: str = ""
    heard: HeardState | None = field(default=None, compare=False, repr=False)
    further: Iterator[Answer] | None = field(default=None, compare=False, repr=False)

    @property
    def others(self) -> tuple[Answer, ...]:
        """Return how other kinds and profiles that have the topic read the message."""
        found = () if self.further is None else tuple(self.further)
        self.further = iter(found)
        return found
