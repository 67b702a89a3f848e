r"""Commands as rows: a line of JSON, then texts one after the other, whose lengths it has.

| field | meaning |
|---|---|
| `v` | version of the row: a later one is left alone |
| `n` | place in the order of registration |
| `about` | the registration; durations in µs |
| `state`, `by`, `sender` | state; ids of nodes |
| `times`, `until` | created, deadline, finished; expires, quarantined until, at rest until (µs) |
| `waiting` | nodes that wait for the outcome |
| `reception` | received at (µs), correlation, size of the payload, and what a probe found, where one did |
| `occupied` | topics on which it waits, or which it keeps in quarantine |
| `verified` | what a probe found after it had timed out, or null |
| `reports`, `count` | number and instant (µs) of each report that is kept; how many there were |
| `hold` | until, timeout (µs), claims, caller, given back (µs), token of a claim, not before (µs), approval; key |
|        | of what it takes the place of, and its fleet run, where it has one of these; or null |
| `sizes` | of params, result, error, progress, late and each report; -1 where there is none |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from app.core.commands.approval import Approval
from app.core.commands.callback import Expectation, Registration
from app.core.commands.command import CommandState, Hold, IfOffline
from app.core.commands.history import Report
from app.core.commands.reception import Reception
from app.core.errors import UnreadableRecordError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.memory.commands.records import Record
from app.store.rules import micros

VERSION: Final = 1
_NOTHING: Final = -1


def encode_record(record: Record, occupied: Sequence[str]) -> bytes:
    """The row of a command."""
    command, reception = record.command, record.reception
    texts = [command.params, command.result, command.error, command.progress, command.late]
    texts += [one.progress for one in record.reports]
    head = {
        "v": VERSION,
        "n": record.number,
        "about": _about(record.registration),
        "state": command.state,
        "times": [command.created_at, command.deadline, command.finished_at],
        "until": [record.expires_at, record.quarantined_until, record.rests_until],
        "by": command.received_by,
        "sender": record.sender,
        "waiting": record.waiting,
        "passed_on": record.passed_on,
        "reception": None if reception is None else _of_reception(reception),
        "occupied": occupied,
        "reports": [[one.number, one.at] for one in record.reports],
        "count": record.report_count,
        "verified": None if command.verified is None else command.verified.decode("ascii"),
        "hold": None if command.hold is None else _hold(command.hold, record.claim),
        "sizes": [_NOTHING if one is None else len(one) for one in texts],
    }
    line = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    return b"\n".join((line, b"".join(one for one in texts if one is not None)))


def decode_record(command_id: str, row: bytes) -> tuple[Record, Sequence[str]]:
    """The record, and the topics that it occupies; UnreadableRecordError."""
    try:
        line, _, rest = row.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        if head["v"] > VERSION:
            raise UnreadableRecordError(command_id, f"it is of version {head['v']}, and this node reads {VERSION}")
        return _record(command_id, head, rest), head["occupied"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableRecordError(command_id, f"it is damaged ({type(error).__name__})") from None


def _record(command_id: str, head: dict[str, Any], rest: bytes) -> Record:
    texts: list[bytes | None] = []
    at = 0
    for size in head["sizes"]:
        texts.append(None if size == _NOTHING else rest[at : at + size])
        at += max(0, size)
    if at != len(rest):
        raise ValueError("the texts are not as long as they are said to be")
    params, result, error, progress, late = texts[:5]
    registration = _registration(command_id, head["about"], params or b"")
    created_at, deadline, finished_at = head["times"]
    expires_at, quarantined_until, *rests_until = head["until"]
    reception = None
    if head["reception"] is not None:
        reception = _reception(*head["reception"])
    hold, claim = None, ""
    if head.get("hold") is not None:
        until, timeout, claims, who, given_back_at, claim, not_before, *more = head["hold"]
        approval = Approval.of_text(more[0]) if more and more[0] is not None else None
        lasts = timedelta(microseconds=timeout)
        hold = Hold(until, lasts, who, claims, given_back_at, not_before, approval, *more[1:])
    verified = head.get("verified")
    command = replace(
        registration.command(created_at, deadline),
        hold=hold,
        state=CommandState(head["state"]),
        finished_at=finished_at,
        received_by=head["by"],
        result=result,
        error=error,
        progress=progress,
        late=late,
        verified=None if verified is None else verified.encode("ascii"),
        matched_by=None if reception is None else reception.correlation,
        confirmed_by=None if reception is None else reception.finding,
    )
    reports = [Report(number, at, text) for (number, at), text in zip(head["reports"], texts[5:], strict=True)]
    return Record(
        command,
        registration,
        head["waiting"],
        expires_at,
        reception=reception,
        sender=head["sender"],
        passed_on=head.get("passed_on", False),
        claim=claim,
        reports=reports,
        report_count=head["count"],
        quarantined_until=quarantined_until,
        rests_until=rests_until[0] if rests_until else 0,
        number=head["n"],
    )


def _of_reception(one: Reception) -> list[Any]:
    found = [] if one.finding is None else [one.finding.decode("ascii")]
    return [one.received_at, one.correlation, one.size, *found]


def _reception(received_at: int | None, correlation: str, size: int, finding: str | None = None) -> Reception:
    return Reception(received_at, Correlation(correlation), size, None if finding is None else finding.encode("ascii"))


def _hold(hold: Hold, claim: str) -> list[Any]:
    approval = None if hold.approval is None else hold.approval.to_text()
    told = (hold.until, micros(hold.timeout), hold.claims, hold.who, hold.given_back_at, claim, hold.not_before)
    return [*told, approval, *((hold.replaces, hold.run) if hold.replaces or hold.run else ())]


def _about(one: Registration) -> dict[str, Any]:
    return {
        "device": one.device_id,
        "method": one.method,
        "profile": one.profile,
        "home": one.home_node,
        "expects": [[place.topic, place.correlation, place.value] for place in one.expectations],
        "timeout": micros(one.timeout),
        "retention": micros(one.retention),
        "quarantine": micros(one.quarantine),
        "key": one.idempotency_key,
        "fingerprint": one.fingerprint,
        "trace": one.trace,
        "offline": one.if_offline,
        "notify": one.notify,
        "by_homing": one.by_homing,
        "lane": None if one.lane is None else [one.lane.name, one.lane.order, one.lane.width, micros(one.lane.rest)],
        "lane_rules": None if one.lane is None else _rules_of(one.lane),
    }


def _rules_of(lane: CommandLane) -> dict[str, Any] | None:
    """Return what a lane of 0.3.0 may say besides; None where it says nothing of it."""
    if not (lane.pace or lane.stops or lane.excludes or lane.excluded_by):
        return None
    return {
        "pace": micros(lane.pace),
        "stops": lane.stops,
        "excludes": lane.excludes,
        "excluded_by": lane.excluded_by,
    }


def _lane(rules: dict[str, Any] | None, name: str, order: str, width: int, rest: int) -> CommandLane:
    lane = CommandLane(name, LaneOrder(order), width, timedelta(microseconds=rest))
    if rules is None:
        return lane
    pace, stops = timedelta(microseconds=rules["pace"]), bool(rules["stops"])
    excludes, excluded_by = tuple(rules["excludes"]), tuple(rules["excluded_by"])
    return replace(lane, pace=pace, excludes=excludes, excluded_by=excluded_by, stops=stops)


def _registration(command_id: str, about: dict[str, Any], params: bytes) -> Registration:
    return Registration(
        command_id=command_id,
        device_id=about["device"],
        method=about["method"],
        params=params,
        profile=about["profile"],
        home_node=about["home"],
        expectations=tuple(Expectation(topic, Correlation(how), value) for topic, how, value in about["expects"]),
        timeout=timedelta(microseconds=about["timeout"]),
        retention=timedelta(microseconds=about["retention"]),
        quarantine=timedelta(microseconds=about["quarantine"]),
        idempotency_key=about["key"],
        fingerprint=about["fingerprint"],
        trace=about["trace"],
        if_offline=IfOffline(about["offline"]),
        notify=tuple(about["notify"]),
        lane=None if about.get("lane") is None else _lane(about.get("lane_rules"), *about["lane"]),
        by_homing=about.get("by_homing", False),
    )
