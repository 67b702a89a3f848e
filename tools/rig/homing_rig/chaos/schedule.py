"""The faults of a run as data: planned from the seed before it begins, printed, and read back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from app.core.errors import ConfigurationError

BROKER: Final = "broker"
REDIS: Final = "redis"
INTAKE: Final = "intake"
"""Whichever node brings events in when the time has come."""
DRIVER: Final = "driver"
"""Whichever node drives the fleet run of the scenario when the time has come."""
THIRDS: Final = ("third1", "third2", "third3")
"""The thirds of the slots of a Redis Cluster, each hit at whichever member is its primary when the time has come."""
MOST_FAULTS: Final = 1_000_000
SLOW_MS: Final = 100


class Kind(StrEnum):
    """The kinds of faults that a target can have."""

    KILL = "kill"
    """SIGKILL, and started again after `seconds`; never when that is 0."""
    FREEZE = "freeze"
    """SIGSTOP for `seconds`."""
    RESTART = "restart"
    """SIGTERM; when it has ended, started again after `seconds`."""
    CUT_PUBSUB = "cut_pubsub"
    """CLIENT KILL TYPE pubsub."""
    BLACKHOLE = "blackhole"
    """Nothing passes between a node and Redis for `seconds`, and nobody is told."""
    SLOW = "slow"
    """Each way between a node and Redis takes SLOW_MS longer for `seconds`."""
    FLUSH = "flush"
    """FLUSHALL."""
    FORGET_SCRIPTS = "forget_scripts"
    """SCRIPT FLUSH."""
    FULL = "full"
    """Redis may not take more memory than it has, for `seconds`."""
    WIPE = "wipe"
    """SIGKILL, and Redis starts without its data after `seconds`."""
    FAIL_OVER = "fail_over"
    """SIGKILL of the primary Redis, its replica is promoted, and the old one follows it after `seconds`."""
    SWITCH = "switch"
    """A primary of a Redis Cluster and its replica change places: CLUSTER FAILOVER."""
    OUTAGE = "outage"
    """SIGTERM, and Redis starts with its data at once, but later by `seconds` as its clock tells."""
    CLOCK_FORWARD = "clock_forward"
    """The clock of Redis is set forward by `seconds`."""
    CLOCK_BACK = "clock_back"
    """The clock of Redis is set back by `seconds`."""
    THIEF = "thief"
    """Somebody subscribes in the group of the nodes for `seconds`, and swallows its share."""
    TAKE_OVER = "take_over"
    """Somebody has the client id of a node for `seconds`, and comes back whenever he is thrown out."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One entry of a schedule. `at`: seconds from the beginning of the load."""

    at: float
    kind: Kind
    target: str
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" {self.seconds:g}" if self.seconds else ""
        return f"{self.at:8.2f}  {self.kind:<10} {self.target}{lasting}"


def targets(
    kind: Kind,
    nodes: Sequence[str],
    *,
    proxies: bool,
    steps: bool = False,
    replica: bool = False,
    drives: bool = False,
    cluster: bool = False,
) -> list[str]:
    """The targets that can have this fault."""
    named = [*nodes, *([DRIVER] if drives else [])]
    one_redis = [] if cluster else [REDIS]
    of_redis = {
        **dict.fromkeys((Kind.CUT_PUBSUB, Kind.FLUSH, Kind.WIPE, Kind.FORGET_SCRIPTS, Kind.FULL), not cluster),
        **dict.fromkeys((Kind.OUTAGE, Kind.CLOCK_FORWARD, Kind.CLOCK_BACK), steps),
        Kind.FAIL_OVER: replica,
        Kind.SWITCH: False,
    }
    if cluster and kind in (Kind.FAIL_OVER, Kind.SWITCH):
        return [*THIRDS]
    if kind in of_redis:
        return [REDIS] if of_redis[kind] else []
    match kind:
        case Kind.THIEF:
            return [BROKER]
        case Kind.BLACKHOLE | Kind.SLOW if not proxies:
            return []
        case Kind.BLACKHOLE | Kind.SLOW | Kind.TAKE_OVER:
            return named
        case Kind.FREEZE:
            return [*named, *one_redis, INTAKE]
        case Kind.KILL:
            return [*named, BROKER, *one_redis, INTAKE]
        case _:
            return [*nodes, BROKER]


def check(
    schedule: Iterable[Fault],
    nodes: Sequence[str],
    *,
    proxies: bool,
    steps: bool = False,
    replica: bool = False,
    drives: bool = False,
    cluster: bool = False,
) -> None:
    """ConfigurationError when a fault cannot be injected into such a rig."""
    for fault in schedule:
        allowed = targets(
            fault.kind, nodes, proxies=proxies, steps=steps, replica=replica, drives=drives, cluster=cluster
        )
        if fault.target not in allowed:
            raise ConfigurationError(
                f"schedule: {fault.kind} of {fault.target[:32]!a}; allowed: {', '.join(allowed) or 'no target here'}"
            )


def read_schedule(path: Path) -> list[Fault]:
    """Faults from a file, one per line as `str(fault)` gives it; ConfigurationError names the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"schedule: {path} cannot be read: {reason}") from None
    if len(lines) > MOST_FAULTS:
        raise ConfigurationError(f"schedule: {path} has {len(lines)} lines; allowed are {MOST_FAULTS}")
    return [_fault(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.split("#")[0].strip()]


_LINE: Final = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s+(\w+)\s+(\w+)(?:\s+(\d{1,6}(?:\.\d{1,3})?))?\s*", re.ASCII)


def _fault(line: str, where: str) -> Fault:
    found = _LINE.fullmatch(line.split("#", maxsplit=1)[0])
    if found is None or found[2] not in [*Kind]:
        raise ConfigurationError(
            f"schedule: {where}: {line[:64]!a} is no fault; needed is: when (seconds), one of {', '.join(Kind)}, "
            "a target, and for how many seconds, such as '12.5 kill n2 2'"
        )
    return Fault(float(found[1]), Kind(found[2]), found[3], float(found[4] or 0))
