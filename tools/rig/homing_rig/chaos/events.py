"""Events of a chaos run, of which a history is made (`homing_rig.chaos.history`).

Instants (`at`) are seconds since the start of the run on the rig's monotonic clock; durations are seconds.

How a client operation ends is told as in Jepsen's histories:

    ok       it is known what happened: 200, 202, 504 with a command id, 409 to a cancellation
    fail     it is known that nothing happened: connection refused, 4xx, 503 of what was not sent
    unknown  it may have happened or not: reset after the request was written, timeout of the client, any other 503
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from app.core.commands.command import CommandState

VERSION: Final = 1
"""The version of the format; a reader refuses any other."""

GONE: Final = "gone"
"""The word of a read for a command that is not on record (404), in place of a state."""

REDIS_KEYS_BASELINE: Final = "redis.keys.baseline"
"""Metric: DBSIZE before the first command."""
REDIS_KEYS_AFTER_TTL: Final = "redis.keys.after_ttl"
"""Metric: DBSIZE with the same nodes running, when the retention of every command has passed."""
BROKER_DROPPED: Final = "broker.dropped"
"""Metric: how many messages the broker dropped during the run ($SYS/broker/publish/messages/dropped)."""


class OperationKind(StrEnum):
    """The kind of operation that a client asks a node for."""

    COMMAND = "command"
    READ = "read"
    CANCEL = "cancel"


class Mode(StrEnum):
    """The mode of a caller: waiting for the outcome, or taking 202 and coming back."""

    SYNC = "sync"
    ASYNC = "async"


class FaultPhase(StrEnum):
    """A fault lasts from BEGIN to END; MOMENT is one that is over at once (a connection is cut)."""

    BEGIN = "begin"
    END = "end"
    MOMENT = "moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line.

    `limits` names figures of the checker (see `figures`) and the most that each may be, beside and above those
    that hold for every run (`report.LIMITS`); `tolerated` names kinds of violations that this scenario cannot exclude:
    they are counted and do not decide the verdict. `expects` names invariants without evidence for which there is no
    verdict. `settings` is for people.
    """

    scenario: str
    seed: int
    started_at: str
    """Wall clock, RFC 3339."""
    version: int = VERSION
    retention: float | None = None
    """The time for which a command stays on record after its outcome; None: longer than the run."""
    grace: float = 2.0
    """The time that a command may take to become final after its deadline, and a caller to be answered."""
    recovery: float = 0.0
    """Calls that begin up to so long after the end of a fault count as made during it (latencies only)."""
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerated: tuple[str, ...] = ()
    expects: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A client sends a request. Written before the first byte leaves.

    A COMMAND has `device`, `nonce` (in its params, echoed in the result; all attempts under one key share it), `key`
    where it has an idempotency key, and `mode`; `timeout` is that of the command, and `hold` how long it may be held
    before that. Those with a `lane` of a device are invoked one after the other, as that lane is to have them.
    A READ or CANCEL has `command_id`, and `timeout` is how long its client waits.
    """

    at: float
    op: int
    caller: str
    node: str
    kind: OperationKind
    timeout: float
    hold: float = 0.0
    device: str | None = None
    nonce: str | None = None
    key: str | None = None
    lane: str | None = None
    mode: Mode = Mode.SYNC
    command_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of the operation `op`, and what the answer says; None for what it does not say.

    `state` is a CommandState, or "gone" for 404 to a READ. `result_nonce` is the nonce in the result of the command,
    `late_nonce` the one in its late annex, `late` whether it has one. `overrun` is `finished_at` - `deadline`, both
    from the answer. `claims` is how often a command that may be held was claimed. `reason` says in a word why there is
    no better answer (`refused`, `reset`, `timeout`, a problem's slug).
    """

    at: float
    op: int
    latency: float
    status: int | None = None
    command_id: str | None = None
    state: str | None = None
    result_nonce: str | None = None
    late: bool = False
    late_nonce: str | None = None
    overrun: float | None = None
    claims: int | None = None
    replayed: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok(Completion):
    """It is known what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(Completion):
    """It is known that nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Completion):
    """It may have happened or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A device received a command and does what it says; `dup` is the DUP flag of the PUBLISH, None if not known."""

    at: float
    device: str
    command_id: str
    nonce: str | None = None
    dup: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A device published a response. `sequence` is unique within the run; `state` is running, succeeded or failed."""

    at: float
    device: str
    command_id: str
    sequence: int
    state: str = CommandState.SUCCEEDED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAcked:
    """The broker sent the device its PUBACK for the response `sequence`: from now on it must not be lost."""

    at: float
    device: str
    command_id: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something was broken, or mended. `target` is a node id, `redis`, `broker`, or a proxy's name."""

    at: float
    kind: str
    target: str
    phase: FaultPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRead:
    """After the run, when all is quiet: what `node` says of a command. Members as those of a completion.

    `ended` is `finished_at` by the clock of the run.
    """

    at: float
    node: str
    command_id: str
    state: str
    result_nonce: str | None = None
    late: bool = False
    late_nonce: str | None = None
    overrun: float | None = None
    ended: float | None = None
    claims: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRead:
    """The mark of a target of a fleet run was read in the store, and is another one than at the reading before."""

    at: float
    run: str
    target: int
    mark: str
    """The word of a TargetMark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure taken at the end: a counter of a node (`source` is its id), or one of the names above."""

    at: float
    source: str
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line: the rig came to its end, so what is missing did not happen."""

    at: float


Event = (
    Header
    | Invoke
    | Ok
    | Fail
    | Unknown
    | Executed
    | Answered
    | AnswerAcked
    | Fault
    | FinalRead
    | MarkRead
    | Metric
    | End
)

NAMES: Final[Mapping[str, type[Event]]] = MappingProxyType(
    {
        "header": Header,
        "invoke": Invoke,
        "ok": Ok,
        "fail": Fail,
        "unknown": Unknown,
        "executed": Executed,
        "answered": Answered,
        "answer_acked": AnswerAcked,
        "fault": Fault,
        "final_read": FinalRead,
        "mark_read": MarkRead,
        "metric": Metric,
        "end": End,
    }
)
"""The member `event` of a line -> what it is."""
