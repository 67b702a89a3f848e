"""Judges what a cluster looks like at a glance: which party is in trouble, and what fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from app.core.commands.diagnosis import Verdict

MOST_GROUPS: Final = 20
LATELY_US: Final = 600_000_000
"""A failure longer ago says nothing about the present."""
NEARLY_FULL: Final = 0.9
WARMING_UP_US: Final = 15_000_000
"""The canaries of a node that is younger may still be on their way."""
_CANARY: Final = "canary"
_OF_BROKER: Final = ("mqtt", _CANARY)
_BUT: Final = "ok, but "
"""A check that is well, and tells of trouble all the same, says so with these first words."""
_OFFLINE: Final = "device_offline"
_TOO_MUCH: Final = frozenset({"packet_too_large", "unpublishable"})


class Party(StrEnum):
    """A party that trouble belongs to."""

    HOMING = "homing"
    BROKER = "broker"
    DEVICE = "device"
    CALLER = "caller"


PARTIES: Final[Mapping[Verdict, Party]] = MappingProxyType(
    {
        Verdict.NODE_DIED: Party.HOMING,
        Verdict.NOT_ACKNOWLEDGED: Party.BROKER,
        Verdict.DEVICE_REFUSED: Party.DEVICE,
        Verdict.NO_SUBSCRIBER: Party.DEVICE,
        Verdict.SILENT: Party.DEVICE,
        Verdict.ANSWERED_LATE: Party.DEVICE,
        Verdict.ID_CHANGED: Party.DEVICE,
        Verdict.UNDECODABLE: Party.DEVICE,
        Verdict.WRONG_PROFILE: Party.CALLER,
    }
)
"""A verdict about a command that is not here blames nobody."""


def party_of(verdict: Verdict, code: str) -> Party | None:
    """The party to which a failed command belongs; None where that is not certain. `code` is that of its error."""
    if verdict is not Verdict.NOT_HANDED_OVER:
        return PARTIES.get(verdict)
    if code == _OFFLINE:
        return Party.DEVICE
    return Party.CALLER if code in _TOO_MUCH else None


@dataclass(frozen=True, slots=True)
class NodeGlance:
    """A node at a glance. `age_us` is how long it has been running; a node that did not answer has `answered` false.

    A node of an older version answers, and says nothing of itself: neither a version nor a state.
    """

    node_id: str
    answered: bool
    state: str = ""
    version: str = ""
    age_us: int = 0
    checks: Mapping[str, str] = field(default_factory=dict)
    open: int = 0
    fullest: tuple[str, int, int] | None = None
    """The name, size and bound of the buffer that is fullest."""

    @property
    def failing(self) -> Mapping[str, str]:
        """The checks that say what is wrong."""
        return {
            name: said
            for name, said in self.checks.items()
            if not (said == "ok" or said.startswith(_BUT)) and not (name == _CANARY and self.age_us < WARMING_UP_US)
        }


class NodeDeath(NamedTuple):
    """A node that others took for dead at an instant (µs), as the broker had lost it and it did not come back."""

    node_id: str
    at: int


@dataclass(frozen=True, slots=True)
class JudgedFailure:
    """A command that has failed at an instant (µs), and the verdict about it; None before it was explained."""

    at: int
    command_id: str
    device_id: str
    profile: str
    method: str
    verdict: Verdict | None = None
    party: Party | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class TroubleGroup:
    """Failures of one kind: how many, of how many devices, from when until the newest one."""

    count: int
    devices: int
    first_at: int
    newest: JudgedFailure


@dataclass(frozen=True, slots=True)
class OverallVerdict:
    """The party in trouble, None where all is well, and a sentence about it. `since` is an instant in microseconds."""

    party: Party | None
    text: str
    since: int | None = None


def grouped(failures: Iterable[JudgedFailure]) -> Sequence[TroubleGroup]:
    """The groups by party, verdict, profile and method, largest first."""
    groups: dict[tuple[object, ...], list[JudgedFailure]] = {}
    for one in failures:
        groups.setdefault((one.party, one.verdict, one.profile, one.method), []).append(one)
    found = [
        TroubleGroup(
            len(group),
            len({one.device_id for one in group}),
            min(one.at for one in group),
            max(group, key=lambda one: one.at),
        )
        for group in groups.values()
    ]
    return sorted(found, key=lambda one: (one.count, one.newest.at), reverse=True)[:MOST_GROUPS]


def judge_cluster(
    nodes: Sequence[NodeGlance],
    failures: Sequence[JudgedFailure],
    now: int,
    *,
    named: bool,
    deaths: Sequence[NodeDeath] = (),
) -> OverallVerdict:
    """The first party that is in trouble. Nodes are mentioned by name only if `named`."""
    return (
        _homing(nodes, named=named)
        or _dead(nodes, deaths, now, named=named)
        or _broker(nodes, named=named)
        or _others(failures, now)
    )


def _dead(nodes: Sequence[NodeGlance], deaths: Sequence[NodeDeath], now: int, *, named: bool) -> OverallVerdict | None:
    """Name nodes that died lately, unless one has begun since: the same one, or another in its place."""
    alive = {one.node_id for one in nodes}
    begun = [now - one.age_us for one in nodes if one.version]
    missed = {
        one.node_id: one.at
        for one in deaths
        if one.at >= now - LATELY_US and one.node_id not in alive and not any(at > one.at for at in begun)
    }
    if not missed:
        return None
    names = f" ({', '.join(sorted(missed))})" if named else ""
    which = f"{len(missed)} of {len(nodes) + len(missed)} nodes{names}"
    return OverallVerdict(
        Party.HOMING, f"{which} gone: killed or cut off, and none has begun since", min(missed.values())
    )


def _homing(nodes: Sequence[NodeGlance], *, named: bool) -> OverallVerdict | None:
    silent = [one for one in nodes if not one.answered]
    if silent:
        return OverallVerdict(
            Party.HOMING,
            f"{_who(silent, nodes, named=named)} did not answer within half a second: frozen, overloaded or cut off",
        )
    for node in nodes:
        for name, said in node.failing.items():
            if name not in _OF_BROKER:
                return OverallVerdict(Party.HOMING, f"{_who([node], nodes, named=named)} is not ready: {name}: {said}")
        if node.fullest is not None and node.fullest[1] >= NEARLY_FULL * node.fullest[2]:
            name, size, bound = node.fullest
            which = _who([node], nodes, named=named)
            return OverallVerdict(Party.HOMING, f"{which} is nearly full: {name} has {size} of {bound}")
    return None


def _broker(nodes: Sequence[NodeGlance], *, named: bool) -> OverallVerdict | None:
    for check in _OF_BROKER:
        failing = [one for one in nodes if check in one.failing]
        if failing:
            said = failing[0].failing[check]
            return OverallVerdict(Party.BROKER, f"{_who(failing, nodes, named=named)}: {said}")
    slow = [one for one in nodes if one.checks.get(_CANARY, "").startswith(_BUT)]
    if slow:
        said = slow[0].checks[_CANARY].removeprefix(_BUT)
        return OverallVerdict(Party.BROKER, f"{_who(slow, nodes, named=named)}: {said}")
    return None


def _others(failures: Sequence[JudgedFailure], now: int) -> OverallVerdict:
    lately = [one for one in failures if one.at >= now - LATELY_US]
    by_party = {party: [one for one in lately if one.party is party] for party in Party}
    party, most = max(by_party.items(), key=lambda one: len(one[1]))
    if not most:
        older = f"; {_commands(len(failures))} failed in the last hour" if failures else ""
        return OverallVerdict(None, f"nothing is in trouble right now{older}")
    newest = max(most, key=lambda one: one.at)
    devices = len({one.device_id for one in most})
    of = newest.device_id if devices == 1 else f"{devices} devices"
    text = f"{_commands(len(most))} to {of} failed in the last ten minutes; the latest: {newest.text}"
    return OverallVerdict(party, text, min(one.at for one in most))


def _commands(count: int) -> str:
    return "1 command" if count == 1 else f"{count} commands"


def _who(some: Sequence[NodeGlance], nodes: Sequence[NodeGlance], *, named: bool) -> str:
    names = f" ({', '.join(sorted(one.node_id for one in some))})" if named else ""
    return f"{len(some)} of {len(nodes)} nodes{names}"
