"""The overview as JSON, made once for all on this node whose rights show the same of it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, Protocol

import orjson

from app.api import sse
from app.api.representation import instant
from app.core.access.rules import Action
from app.core.last_hour import HourNumbers, TallyNumbers
from app.core.overview import NodeGlance, OverallVerdict, TroubleGroup, grouped, judge_cluster
from app.node import NodeState
from app.overview import MINUTE_US, ClusterGlance, OpenCommand

MOST_OPEN: Final = 50


class Rights(Protocol):
    """The rights of a caller, as an overview asks for them."""

    def may(self, action: Action, /) -> bool:
        """True if they may do what is about no device."""

    def may_know(self, device: str, profile: str, method: str, /) -> bool:
        """True if they may know of a command that was such a one."""


class _Shown(NamedTuple):
    """The parts of an overview that rights show: who is shown the same gets the same bytes."""

    nodes: bool
    numbers: bool
    commands: AbstractSet[tuple[str, str, str]]
    """Device, profile and method of those that the caller may know of."""


@dataclass(frozen=True, slots=True)
class OverviewView:
    """An overview as a caller may see it."""

    body: bytes
    """The JSON."""
    event: bytes
    """The same as an event of a stream."""
    bookmark: bytes
    """Says that nothing else has changed until then."""
    said: bytes
    """All of it but the instant."""
    urgent: object
    """The part that is to be known at once when it changes: who is in trouble, which nodes serve, what fails."""


class OverviewViews:
    """The latest overview, as callers may see it."""

    def __init__(self) -> None:
        self._glance: ClusterGlance | None = None
        self._commands: AbstractSet[tuple[str, str, str]] = frozenset()
        self._views: dict[_Shown, OverviewView] = {}

    def view(self, glance: ClusterGlance, rights: Rights) -> OverviewView:
        """Return what these rights show of the overview."""
        if glance is not self._glance:
            failed = {(one.device_id, one.profile, one.method) for one in glance.failures}
            self._commands = failed | {(one.device_id, one.profile, one.method) for one in glance.open}
            self._glance, self._views = glance, {}
        shown = _Shown(
            rights.may(Action.NODES),
            rights.may(Action.METRICS),
            frozenset(one for one in self._commands if rights.may_know(*one)),
        )
        if shown not in self._views:
            self._views[shown] = _view(glance, shown)
        return self._views[shown]


def _view(glance: ClusterGlance, shown: _Shown) -> OverviewView:
    failures = [one for one in glance.failures if (one.device_id, one.profile, one.method) in shown.commands]
    visible = [one for one in glance.open if (one.device_id, one.profile, one.method) in shown.commands]
    verdict = judge_cluster(glance.nodes, failures, glance.at, named=shown.nodes, deaths=glance.deaths)
    groups = grouped(failures)
    said = orjson.dumps(
        {
            "complete": glance.complete,
            "verdict": _headline(verdict),
            "nodes": [_node(one) for one in glance.nodes] if shown.nodes else None,
            "missing": [one.node_id for one in glance.nodes if not one.answered] if shown.nodes else None,
            "open_commands": [_open(one) for one in visible[:MOST_OPEN]],
            "last_hour": _last_hour(glance.last_hour) if shown.numbers else None,
            "trouble": [_trouble(one) for one in groups],
        }
    )
    at = orjson.dumps({"at": instant(glance.at)})
    body = b"%b,%b" % (at[:-1], said[1:])
    nodes = [(one.node_id, one.answered, one.state, *one.failing) for one in glance.nodes]
    failing = {(one.newest.party, one.newest.verdict, one.newest.profile, one.newest.method) for one in groups}
    return OverviewView(
        body=body,
        event=sse.event("overview", body),
        bookmark=sse.event("bookmark", at),
        said=said,
        urgent=(glance.complete, verdict.party, nodes, failing),
    )


def _headline(verdict: OverallVerdict) -> dict[str, Any]:
    since = None if verdict.since is None else instant(verdict.since)
    return {"party": verdict.party, "text": verdict.text, "since": since}


def _node(one: NodeGlance) -> dict[str, Any]:
    older = one.answered and not one.version
    fullest = None if one.fullest is None else dict(zip(("name", "size", "bound"), one.fullest, strict=True))
    return {
        "node_id": one.node_id,
        "answered": one.answered,
        "ready": None if older else one.answered and one.state == NodeState.READY and not one.failing,
        "state": one.state or None,
        "version": one.version or None,
        "checks": dict(one.checks),
        "open": one.open if one.answered and not older else None,
        "fullest": fullest,
    }


def _open(one: OpenCommand) -> dict[str, Any]:
    return {
        "id": one.command_id,
        "device_id": one.device_id,
        "profile": one.profile,
        "method": one.method,
        "created_at": instant(one.created_at),
        "home_node": one.home_node,
    }


def _last_hour(found: HourNumbers) -> dict[str, Any]:
    return {
        "total": _of_all(found.total),
        "minutes": [{"at": instant(minute * MINUTE_US), **_of_all(one)} for minute, one in found.minutes.items()],
        "methods": [
            {"profile": method.profile, "method": method.name, "timeout_ms": _ms(one.timeout), **_tally(one)}
            for method, one in found.methods.items()
        ],
    }


def _of_all(one: TallyNumbers) -> dict[str, Any]:
    return {"begun": one.begun, **_tally(one)}


def _tally(one: TallyNumbers) -> dict[str, Any]:
    return {"ended": one.ended, "p50_ms": _ms(one.p50), "p95_ms": _ms(one.p95), "p99_ms": _ms(one.p99)}


def _ms(seconds: float | None) -> int | None:
    """Whole milliseconds, rounded up."""
    return None if seconds is None else ceil(1000 * seconds)


def _trouble(one: TroubleGroup) -> dict[str, Any]:
    newest = one.newest
    return {
        "party": newest.party,
        "code": newest.verdict,
        "profile": newest.profile,
        "method": newest.method,
        "count": one.count,
        "devices": one.devices,
        "since": instant(one.first_at),
        "newest": {
            "id": newest.command_id,
            "device_id": newest.device_id,
            "at": instant(newest.at),
            "text": newest.text,
        },
    }
