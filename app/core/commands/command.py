"""The command, and the only place that knows which state may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType

from app.core.commands.approval import Approval
from app.core.errors import IllegalTransitionError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane
from app.core.values import value


class CommandState(StrEnum):
    """The state of a command."""

    HELD = "held"
    PENDING = "pending"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    UNSENT = "unsent"

    @property
    def final(self) -> bool:
        """True if this state is an outcome: nothing follows it, a late response is only annexed."""
        return self in FINAL_STATES


class CommandEvent(StrEnum):
    """The events that can happen to a command."""

    CLAIM = "claim"
    GIVE_BACK = "give_back"
    PUBLISH = "publish"
    PUBACK = "puback"
    PROGRESS = "progress"
    SUCCEED = "succeed"
    FAIL = "fail"
    EXPIRE = "expire"
    CANCEL = "cancel"
    REFUSE = "refuse"


class IfOffline(StrEnum):
    """The fate of a command if the broker reports that nobody is subscribed to its topic (PUBACK 0x10)."""

    FAIL = "fail"
    """It is unsent, at once."""
    SEND = "send"
    """It waits for an answer until its deadline, as somebody may have it whom the broker does not count."""
    HOLD = "hold"
    """It is held until the device is there; see `Hold`."""


_S, _E = CommandState, CommandEvent
_ENDINGS = {
    _E.SUCCEED: _S.SUCCEEDED,
    _E.FAIL: _S.FAILED,
    _E.EXPIRE: _S.TIMED_OUT,
    _E.CANCEL: _S.CANCELLED,
}

# A device may answer before its broker's PUBACK reaches us, so every open state can end, and an acknowledgement that
# comes after progress changes nothing.
TRANSITIONS: Mapping[CommandState, Mapping[CommandEvent, CommandState]] = MappingProxyType(
    {
        _S.HELD: {
            _E.CLAIM: _S.PENDING,
            _E.CANCEL: _S.CANCELLED,
            _E.REFUSE: _S.UNSENT,
            # Only after a claim was given back: somebody has it after all.
            _E.PROGRESS: _S.RUNNING,
            _E.SUCCEED: _S.SUCCEEDED,
            _E.FAIL: _S.FAILED,
        },
        _S.PENDING: _ENDINGS
        | {
            _E.GIVE_BACK: _S.HELD,
            _E.PUBLISH: _S.SENT,
            _E.PUBACK: _S.ACKNOWLEDGED,
            _E.PROGRESS: _S.RUNNING,
            _E.REFUSE: _S.UNSENT,
        },
        _S.SENT: _ENDINGS | {_E.PUBACK: _S.ACKNOWLEDGED, _E.PROGRESS: _S.RUNNING, _E.REFUSE: _S.UNSENT},
        _S.ACKNOWLEDGED: _ENDINGS | {_E.PROGRESS: _S.RUNNING},
        _S.RUNNING: _ENDINGS | {_E.PROGRESS: _S.RUNNING, _E.PUBACK: _S.RUNNING, _E.PUBLISH: _S.RUNNING},
        _S.SUCCEEDED: {},
        _S.FAILED: {},
        _S.TIMED_OUT: {},
        _S.CANCELLED: {},
        _S.UNSENT: {},
    }
)

FINAL_STATES = frozenset(state for state, events in TRANSITIONS.items() if not events)
OPEN_STATES = frozenset(TRANSITIONS) - FINAL_STATES


def after(state: CommandState, event: CommandEvent, command_id: str = "") -> CommandState:
    """The state that follows `state` on `event`; IllegalTransitionError where the table has none."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransitionError(command_id, f"{event} is not possible in state {state}") from None


class WaitReason(StrEnum):
    """The event that has to come before a held command is sent."""

    APPROVAL = "approval"
    TIME = "time"
    LANE = "lane"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Hold:
    """The wait of a command to be sent: until when, and how often a node has claimed it so far.

    `until` is in microseconds on the store's clock. `timeout` begins with each claim. `who` is the caller, as
    `app/core/access/callers.py` writes them: their right is judged again at each claim.
    """

    until: int
    timeout: timedelta
    who: str
    claims: int = 0
    given_back_at: int | None = None
    """The instant at which the last claim was given back, in microseconds on the store's clock; None if none was."""
    not_before: int | None = None
    """The instant before which it is not sent, in microseconds on the store's clock; None if it has none."""
    approval: Approval | None = None
    """The approval of a second person that it needs; None if it needs none."""
    replaces: str = ""
    """A key of its caller: of the commands with it that wait at a device the last one stays. Empty if it has none."""
    run: str = ""
    """The fleet run that it belongs to, while which stands nobody sends it; empty if it belongs to none."""

    @property
    def awaits_approval(self) -> bool:
        """True if a second person has yet to decide about it."""
        return self.approval is not None and self.approval.waits

    @property
    def lapses_at(self) -> int:
        """The instant at which it ends unsent, if nothing else comes: its end, or that of the time for an approval."""
        return self.approval.until if self.approval is not None and self.awaits_approval else self.until


@value
class Command:
    """A command as the store knows it. Instants are microseconds since the Unix epoch on the store's clock.

    `params`, `result`, `error`, `progress` and `late` are JSON texts, or None where there is none. `error` is an object
    with `code` and `message`; `late` is an object with `state`, `result`, `error` and `received_at`; `verified` is
    what `verified_annex` in `app/store/rules.py` writes.
    """

    id: str
    device_id: str
    method: str
    params: bytes
    profile: str
    state: CommandState
    home_node: str
    created_at: int
    deadline: int
    finished_at: int | None = None
    received_by: str | None = None
    result: bytes | None = None
    error: bytes | None = None
    progress: bytes | None = None
    late: bytes | None = None
    one_way: bool = False
    """True if it waits for no response: it has succeeded when the broker has it, and somebody was subscribed."""
    if_offline: IfOffline = IfOffline.SEND
    notify: tuple[str, ...] = ()
    """The webhook endpoints that are told of its outcome and late answer."""
    hold: Hold | None = None
    """Its wait to be sent; None of those that were sent at once. The deadline of a held command is the latest one
    that is possible."""
    matched_by: Correlation | None = None
    """The way in which the response named it; None without one, and where a node of 0.1.0 did not note it."""
    confirmed_by: bytes | None = None
    """The finding of a probe in the state of the device, as a JSON text, where that made the outcome."""
    lane: CommandLane | None = None
    """The lane of its device through which it goes."""
    by_homing: bool = False
    """True if no caller asked for it: a probe asked the device for its state."""
    verified: bytes | None = None
    """The finding of a probe after it had timed out, as a JSON text: what the device said of its state then."""

    @property
    def forwarded(self) -> bool:
        """True if the response arrived on a node other than the home node."""
        return self.received_by is not None and self.received_by != self.home_node

    @property
    def approval(self) -> Approval | None:
        """The approval of a second person that it needs, or needed; None if it needs none."""
        return None if self.hold is None else self.hold.approval

    @property
    def awaits_approval(self) -> bool:
        """True if it is held until a second person has decided about it."""
        return self.state is CommandState.HELD and self.hold is not None and self.hold.awaits_approval

    @property
    def begun_at(self) -> int:
        """The instant at which its timeout began: that of its claim if it was held, else of its registration."""
        hold = self.hold
        if hold is None or not hold.claims or hold.given_back_at is not None:
            return self.created_at
        return self.deadline - hold.timeout // timedelta(microseconds=1)

    @property
    def ready_at(self) -> int:
        """The instant from which it stands in line: that of its approval, or of its registration."""
        return self.created_at if self.approval is None else self.approval.decided_at or self.created_at

    @property
    def waits_for(self) -> tuple[WaitReason, ...]:
        """Return what has to come before it is sent; nothing once it was claimed, and after its end."""
        if self.state is not CommandState.HELD or self.hold is None:
            return ()
        wanted = {
            WaitReason.APPROVAL: self.hold.awaits_approval,
            WaitReason.TIME: self.hold.not_before is not None,
            WaitReason.LANE: self.lane is not None,
            WaitReason.DEVICE: self.if_offline is IfOffline.HOLD,
        }
        return tuple(reason for reason, so in wanted.items() if so)
