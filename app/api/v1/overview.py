"""The cluster at a glance over HTTP."""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import orjson
from fastapi import Response as Reply

from app.api.dependencies import NodePorts, WhoAsks
from app.api.http import NO_STORE, BytesResponse
from app.api.openapi import knows, problems_of
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import overview_models as schemas
from app.core.access.rules import Action
from app.core.last_hour import HourNumbers, TallyNumbers
from app.core.overview import NodeGlance, OverallVerdict, TroubleGroup, grouped, judge_cluster
from app.node import NodeState
from app.overview import MINUTE_US, OpenCommand

MOST_OPEN: Final = 50

router = GuardedRouter(prefix="/v1", tags=["cluster"])


@router.get(
    "/overview",
    summary="Read the state of the cluster, its troubles and open commands at a glance",
    response_model=schemas.Overview,
    response_description="The overview, two seconds old at most.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def read_overview(ports: NodePorts, asker: WhoAsks) -> Reply:
    """Asks all nodes at most every two seconds, whoever calls. The verdict names the first party that is in trouble.

    The parties are Homing itself, the MQTT broker, devices and callers, in this order. Commands count only if the
    caller may read them. A verdict that is not certain blames nobody. The last hour is what the nodes that live have
    seen of it: a node that was restarted has forgotten what was before. Its times are read off histograms.
    """
    named = asker.may(Action.NODES)
    found = await ports.overviews.read()
    failures = [one for one in found.failures if asker.may_know(one.device_id, one.profile, one.method)]
    visible = [one for one in found.open if asker.may_know(one.device_id, one.profile, one.method)]
    body = {
        "at": instant(found.at),
        "complete": found.complete,
        "verdict": _headline(judge_cluster(found.nodes, failures, found.at, named=named, deaths=found.deaths)),
        "nodes": [_node(one) for one in found.nodes] if named else None,
        "missing": [one.node_id for one in found.nodes if not one.answered] if named else None,
        "open_commands": [_open(one) for one in visible[:MOST_OPEN]],
        "last_hour": _last_hour(found.last_hour) if asker.may(Action.METRICS) else None,
        "trouble": [_trouble(one) for one in grouped(failures)],
    }
    return BytesResponse(orjson.dumps(body), headers=[NO_STORE])


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
