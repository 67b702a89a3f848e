"""Explains a run: why it stands or goes on, how its rules stand, and what has failed with which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.core.commands.command import CommandState
from app.core.fleets.marks import TargetMark
from app.core.fleets.run import RunState, RunStep, Why
from app.core.fleets.windows import opens_at
from app.fleets.plan import KnownRun
from app.fleets.target_list import TargetList
from app.store.commands import CommandReader
from app.store.fleets import FleetStore

MOST_LOOKED: Final = 1_000
"""The number of targets in flight, and of those that failed, that one explanation looks at."""
EXAMPLES: Final = 3
_BAD: Final = tuple(one for one in TargetMark if one.ended and one not in (TargetMark.SUCCEEDED, TargetMark.SKIPPED))


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Targets that ended alike."""

    mark: TargetMark
    code: str
    message: str
    count: int
    devices: tuple[str, ...]
    """A few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExplanation:
    """The standing of a run in words and numbers."""

    said: str
    because: RunStep | None
    held: int
    """The targets in flight that wait for their device."""
    failures: Sequence[FailureGroup]


class RunExplainer:
    """Reads the commands that are in flight, and the results of what failed: up to a bound each."""

    def __init__(self, store: FleetStore, commands: CommandReader) -> None:
        self._store = store
        self._commands = commands

    async def explain(self, known: KnownRun, may_know: Callable[[str, str, str], bool]) -> RunExplanation:
        """Explain a run that was read just now. Of what failed it tells as far as `may_know` its targets."""
        listed = TargetList(self._store, known.record.run_id)
        handed = known.run.marked(TargetMark.HANDED)[:MOST_LOOKED]
        children = [known.child(index, (await listed.at(index))[0]) for index in handed]
        commands = await self._commands.get(children)
        held = sum(one is not None and one.state is CommandState.HELD for one in commands)
        last = known.run.status.steps[-1] if known.run.status.steps else None
        return RunExplanation(
            said=_said(known, last, held, await self._commands.date()),
            because=last,
            held=held,
            failures=await self._failures(known, listed, may_know),
        )

    async def _failures(
        self, known: KnownRun, listed: TargetList, may_know: Callable[[str, str, str], bool]
    ) -> list[FailureGroup]:
        bad = [index for index, mark in enumerate(known.run.marks) if mark in _BAD][:MOST_LOOKED]
        groups: dict[tuple[TargetMark, str, str], list[str]] = {}
        for index, result in zip(bad, await self._store.results(known.record.run_id, bad), strict=True):
            device, profile, *_ = await listed.at(index)
            if not may_know(device, profile, known.plan.command.method):
                continue
            _, code, message, *_ = result or (0, "", "")
            key = TargetMark(known.run.marks[index]), "" if code is None else str(code), str(message)
            groups.setdefault(key, []).append(device)
        found = [FailureGroup(*key, len(devices), tuple(devices[:EXAMPLES])) for key, devices in groups.items()]
        return sorted(found, key=lambda one: -one.count)


def _said(known: KnownRun, last: RunStep | None, held: int, now: int) -> str:
    run, state = known.run, known.run.state
    if state is RunState.WAITING:
        opens = opens_at(run.spec.windows, max(now, run.spec.start_at))
        if now < run.spec.start_at or not run.spec.windows:
            return "it waits for its start_at"
        if opens is None or opens >= run.spec.until:
            return "it waits for its window, and none opens before its time is over"
        return f"it waits for its window until {datetime.fromtimestamp(opens // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    if state is RunState.PAUSED and last is not None:
        return f"it is paused {_PAUSED[last.why].format(by=last.by or 'somebody', said=last.said)}"
    if state is RunState.RUNNING and run.status.bake_until is not None:
        return f"wave {run.status.wave + 1} has ended, and its bake is not over"
    flying = run.count(TargetMark.HANDED)
    if flying:
        waits = f", {held} of which wait for their device" if held else ""
        return f"it is {state}: {flying} targets are in flight{waits}"
    if state is RunState.RUNNING:
        left = sum(1 for _ in run.ready())
        return f"{left} targets of wave {run.status.wave + 1} have their turn: they are away, or are handed out next"
    return f"it is {state}" + (f": {last.said}" if last is not None and last.said else "")


_PAUSED: Final[Mapping[Why, str]] = {
    Why.PERSON: "by {by}",
    Why.RULE: "by a stop rule: {said}",
    Why.WAVE: "between two waves: {said}, and a person has to resume it",
    Why.APPROVAL: "between two waves: {said}, and a second person has to approve the next one, by resuming it",
    Why.QUORUM: "as its goal is out of reach: {said}",
}


def rules_json(known: KnownRun) -> list[dict[str, Any]]:
    """Each stop rule, with the number of targets that it counts."""
    counts, forgiven = known.run.counts(), known.run.status.forgiven
    return [
        {**rule.to_json(), "counted": sum(counts.get(one, 0) - forgiven.get(one, 0) for one in rule.of)}
        for rule in known.plan.spec.stop
    ]
