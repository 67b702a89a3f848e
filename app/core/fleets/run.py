"""A fleet run as a state machine: the only place that knows which state may follow which, and what stops a run.

Nothing here waits, reads or writes. Who drives a run tells it what has happened, and asks what is to be done next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from types import MappingProxyType
from typing import Any, Final

from app.core.errors import RunStateError
from app.core.fleets.marks import ENDED_WORDS, TargetMark
from app.core.fleets.spec import APPROVE, RunSpec
from app.core.fleets.windows import is_open as is_open_at

MOST_STEPS: Final = 50
"""The number of changes of its state that a run remembers, the latest ones."""


class RunState(StrEnum):
    """The state of a fleet run."""

    WAITING = auto()
    """Its time has not come, or it waits for a window."""
    RUNNING = auto()
    PAUSED = auto()
    """Nothing is handed out: by a person, by a stop rule, or between two waves."""
    FINISHING = auto()
    """Nothing is handed out any more, and what is in flight ends."""
    ABORTING = auto()
    """The same after an abort."""
    SUCCEEDED = auto()
    FAILED = auto()
    """All targets have ended, and not all of them succeeded."""
    LAPSED = auto()
    """Its time was over before all targets had their turn."""
    ABORTED = auto()

    @property
    def final(self) -> bool:
        """True if nothing follows."""
        return not TRANSITIONS[self]


class RunEvent(StrEnum):
    """The events that change the state of a run."""

    START = auto()
    CLOSE = auto()
    """Its window has closed."""
    PAUSE = auto()
    RESUME = auto()
    FINISH = auto()
    ABORT = auto()
    SUCCEED = auto()
    FAIL = auto()
    LAPSE = auto()
    STOP = auto()
    """The last target of an aborted run has ended."""


_S, _E = RunState, RunEvent
TRANSITIONS: Final[Mapping[RunState, Mapping[RunEvent, RunState]]] = MappingProxyType(
    {
        _S.WAITING: {_E.START: _S.RUNNING, _E.PAUSE: _S.PAUSED, _E.FINISH: _S.FINISHING, _E.ABORT: _S.ABORTING},
        _S.RUNNING: {_E.CLOSE: _S.WAITING, _E.PAUSE: _S.PAUSED, _E.FINISH: _S.FINISHING, _E.ABORT: _S.ABORTING},
        # Back to waiting, from where it starts at once if its time has come.
        _S.PAUSED: {_E.RESUME: _S.WAITING, _E.FINISH: _S.FINISHING, _E.ABORT: _S.ABORTING},
        _S.FINISHING: {
            _E.ABORT: _S.ABORTING,
            _E.SUCCEED: _S.SUCCEEDED,
            _E.FAIL: _S.FAILED,
            _E.LAPSE: _S.LAPSED,
        },
        _S.ABORTING: {_E.STOP: _S.ABORTED},
        _S.SUCCEEDED: {},
        _S.FAILED: {},
        _S.LAPSED: {},
        _S.ABORTED: {},
    }
)


class Why(StrEnum):
    """The reason why a run is in its state."""

    TIME = auto()
    """It waits for `start_at`, or `until` has passed."""
    PERSON = auto()
    RULE = auto()
    """A stop rule."""
    WAVE = auto()
    """Its next wave begins when a person resumes it."""
    DONE = auto()
    """Every target has had its turn, or has ended."""
    APPROVAL = auto()
    """Its next wave begins when another person than the one who began the run resumes it."""
    WINDOW = auto()
    """It waits for a window, or one has opened."""
    QUORUM = auto()
    """Its goal was reached, or cannot be reached any more."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """A change of the state of a run. `by` names the person, where it was one."""

    at: int
    state: RunState
    why: Why
    said: str = ""
    by: str = ""


@dataclass(slots=True)
class RunStatus:
    """All of a run that changes, apart from the marks of its targets. Instants are in microseconds."""

    state: RunState = RunState.WAITING
    wave: int = 0
    wave_began: int | None = None
    bake_until: int | None = None
    cancels: bool = False
    """True if commands that are still open are cancelled, as it was aborted so."""
    spares: bool = False
    """True if what was sent is not, where that would stop its lane."""
    driven_at: int = 0
    """The last instant at which a driver had looked at everything that is in flight."""
    driver: str = ""
    ended_at: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """The number of targets by their mark's word, without zeros, as they were when it was kept."""
    forgiven: dict[str, int] = field(default_factory=dict)
    """The counts when a person last forgave what had failed until then."""
    steps: list[RunStep] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The status as it is kept."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            **({"spares": True} if self.spares else {}),
            "state": str(self.state),
            "steps": [[one.at, str(one.state), str(one.why), one.said, one.by] for one in self.steps],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunStatus:
        """The status that `to_json` wrote."""
        steps = [RunStep(at, RunState(state), Why(why), said, by) for at, state, why, said, by in kept["steps"]]
        plain = {name: kept[name] for name in _PLAIN}
        return cls(state=RunState(kept["state"]), steps=steps, spares=kept.get("spares", False), **plain)


_PLAIN: Final = ("wave", "wave_began", "bake_until", "cancels", "driven_at", "driver", "ended_at", "counts", "forgiven")


class FleetRun:
    """A run. `marks` has a byte for each target; both it and `status` are changed in place."""

    def __init__(self, spec: RunSpec, status: RunStatus, marks: bytearray) -> None:
        self.spec: Final = spec
        self.status: Final = status
        self.marks: Final = marks
        self.ends: Final[Sequence[int]] = spec.wave_ends(len(marks))
        self._counts = {one: marks.count(one) for one in TargetMark}

    @property
    def state(self) -> RunState:
        """The state that it is in."""
        return self.status.state

    def kept(self) -> dict[str, Any]:
        """The status as it is kept, with its counts as they are now."""
        self.status.counts = self.counts()
        return self.status.to_json()

    def count(self, mark: TargetMark) -> int:
        """The number of targets with this mark."""
        return self._counts[mark]

    def counts(self) -> dict[str, int]:
        """The number of targets by the words of their marks, without zeros."""
        return {one.word: self._counts[one] for one in TargetMark if self._counts[one]}

    def marked(self, mark: TargetMark) -> list[int]:
        """The targets with this mark, in their order."""
        return list(self._found(mark, 0, len(self.marks)))

    def wave_of(self, index: int) -> int:
        """The wave that a target is in."""
        return next(wave for wave, end in enumerate(self.ends) if index < end)

    def ready(self) -> Iterator[int]:
        """The targets whose turn it is, in their order; none while nothing is handed out."""
        if self.state is RunState.RUNNING:
            yield from self._found(TargetMark.WAITING, *self._bounds())

    @property
    def room(self) -> int:
        """The number of targets that may be handed out now."""
        return max(0, self.spec.in_flight - self.count(TargetMark.HANDED))

    def hand(self, indexes: Iterable[int]) -> None:
        """Note that commands are about to be registered for these targets; ValueError beyond what is allowed."""
        for index in indexes:
            if self.state is not RunState.RUNNING or self.room < 1 or self.marks[index] != TargetMark.WAITING:
                raise ValueError(f"target {index} may not be handed out now")
            self._mark(index, TargetMark.HANDED)

    def end_target(self, index: int, mark: TargetMark, now: int) -> bool:
        """Note how a target ended, and judge the rules; False where it had ended already, and nothing changes."""
        if not mark.ended:
            raise ValueError(f"{mark.word} is no end of a target")
        if TargetMark(self.marks[index]).ended:
            return False
        self._mark(index, mark)
        self._judge(now)
        return True

    def pause(self, now: int, by: str) -> None:
        """Hand nothing out any more, by the word of a person; RunStateError. A paused run stays as it is."""
        if self.state is not RunState.PAUSED:
            self._go(RunEvent.PAUSE, now, Why.PERSON, by=by)

    @property
    def awaits_approval(self) -> bool:
        """True if it goes on when a second person has approved its next wave."""
        last = self.status.steps[-1] if self.status.steps else None
        return self.state is RunState.PAUSED and last is not None and last.why is Why.APPROVAL

    def resume(self, now: int, by: str, *, forgive: bool = False, approved: int | None = None) -> None:
        """Go on; with `forgive`, what has failed so far counts for no rule any more.

        `approved` is the wave behind which a second person has approved the next one.

        RunStateError also while a rule would stop it at once; the run is good for nothing then, and is read again.
        """
        before = self.status.steps[-1].why if self.status.steps else None
        if self.awaits_approval and approved != self.status.wave:
            raise RunStateError("another person than the one who began the run has to approve its next wave")
        self._go(RunEvent.RESUME, now, Why.PERSON, by=by)
        if forgive:
            self.status.forgiven = self.counts()
        if (fault := self._fault()) is not None:
            raise RunStateError(
                f'a stop rule still holds: {fault}; resume it with "forgive": true to go on all the same'
            )
        if (lost := self._lost()) is not None:
            raise RunStateError(f'{lost}; resume it with "forgive": true to go on all the same')
        if before in (Why.WAVE, Why.APPROVAL):
            self._begin_wave(self.status.wave + 1, now)
        self.advance(now)

    def abort(self, now: int, by: str, *, cancel: bool, spares: bool = False) -> None:
        """End it: who had no turn has none any more. With `cancel`, open commands are cancelled. RunStateError.

        With `spares`, what was sent is not, where that would stop its lane; it takes back no word that came before.
        """
        status = self.status
        if self.state is not RunState.ABORTING:
            self._abort(now, Why.PERSON, by=by)
        if cancel:
            status.spares = spares and (status.spares or not status.cancels)
            status.cancels = True
        self.advance(now)

    def advance(self, now: int) -> None:
        """Do what is due at this instant: begin, go on to the next wave, or end."""
        status = self.status
        if RunEvent.FINISH in TRANSITIONS[self.state]:
            if not self.count(TargetMark.WAITING):
                self._go(RunEvent.FINISH, now, Why.DONE)
            elif now >= self.spec.until:
                self._skip_waiting()
                self._go(RunEvent.FINISH, now, Why.TIME, "its time was over")
        is_open = is_open_at(self.spec.windows, now)
        if self.state is RunState.RUNNING and not is_open:
            self._go(RunEvent.CLOSE, now, Why.WINDOW)
        if self.state is RunState.WAITING and now >= self.spec.start_at and is_open:
            self._go(RunEvent.START, now, Why.WINDOW if self.spec.windows else Why.TIME)
            if status.wave_began is None:
                status.wave_began = now
        if self.state is RunState.RUNNING:
            self._advance_wave(now)
        if self.state in (RunState.FINISHING, RunState.ABORTING) and not self.count(TargetMark.HANDED):
            self._end(now)

    def _advance_wave(self, now: int) -> None:
        status = self.status
        while self.state is RunState.RUNNING and self._wave_has_ended():
            wave = self.spec.wave(status.wave)
            if status.bake_until is None:
                status.bake_until = now + round(wave.bake.total_seconds() * 1_000_000)
            if now < status.bake_until:
                return
            if wave.then:
                why = Why.APPROVAL if wave.then == APPROVE else Why.WAVE
                self._go(RunEvent.PAUSE, now, why, f"wave {status.wave + 1} of {len(self.ends)} has ended")
                return
            self._begin_wave(status.wave + 1, now)

    def _begin_wave(self, wave: int, now: int) -> None:
        self.status.wave, self.status.wave_began, self.status.bake_until = wave, now, None

    def _bounds(self) -> tuple[int, int]:
        wave = self.status.wave
        return self.ends[wave - 1] if wave else 0, self.ends[wave]

    def _wave_has_ended(self) -> bool:
        bounds = self._bounds()
        return all(self.marks.find(one, *bounds) < 0 for one in (TargetMark.WAITING, TargetMark.HANDED))

    def _judge(self, now: int) -> None:
        """Pause or abort where a rule says so: in the very step in which a target ends."""
        if self.state not in (RunState.WAITING, RunState.RUNNING, RunState.PAUSED):
            return
        if (fault := self._fault(aborting=True)) is not None:
            self._abort(now, Why.RULE, fault)
        elif self._is_reached() and self.spec.goal is not None and self.spec.goal.finishes:
            self._skip_waiting()
            self._go(RunEvent.FINISH, now, Why.QUORUM, f"{self.count(TargetMark.SUCCEEDED)} targets have succeeded")
        elif self.state is not RunState.PAUSED and (fault := self._fault()) is not None:
            self._go(RunEvent.PAUSE, now, Why.RULE, fault)
        elif self.state is not RunState.PAUSED and (lost := self._lost()) is not None:
            self._go(RunEvent.PAUSE, now, Why.QUORUM, lost)

    def _is_reached(self) -> bool:
        goal = self.spec.goal
        return goal is not None and self.count(TargetMark.SUCCEEDED) >= goal.wanted(len(self.marks))

    def _lost(self) -> str | None:
        """Say that so many cannot succeed any more; None while they can, and when a person has forgiven it."""
        if self.spec.goal is None or self.status.forgiven:
            return None
        wanted, succeeded = self.spec.goal.wanted(len(self.marks)), self.count(TargetMark.SUCCEEDED)
        left = self.count(TargetMark.WAITING) + self.count(TargetMark.HANDED)
        if succeeded + left >= wanted:
            return None
        return f"quorum_lost: {wanted} targets were to succeed; {succeeded} have, and {left} are left"

    def _fault(self, *, aborting: bool = False) -> str | None:
        """Return what the first rule says that stops the run; None when none does."""
        rules = [one for one in self.spec.stop if one.aborts or not aborting]
        if not rules:  # as for most runs, twice for each target
            return None
        forgiven = self.status.forgiven
        counts = {word: self._counts[mark] - forgiven.get(word, 0) for mark, word in ENDED_WORDS}
        ended = sum(counts.values())
        total, first_wave = len(self.marks), self.ends[0]
        return next((said for one in rules if (said := one.fault(counts, ended, total, first_wave))), None)

    def _abort(self, now: int, why: Why, said: str = "", by: str = "") -> None:
        self._go(RunEvent.ABORT, now, why, said, by)
        self._skip_waiting()

    def _skip_waiting(self) -> None:
        self.marks[:] = self.marks.replace(bytes([TargetMark.WAITING]), bytes([TargetMark.SKIPPED]))
        self._counts[TargetMark.SKIPPED] += self._counts[TargetMark.WAITING]
        self._counts[TargetMark.WAITING] = 0

    def _end(self, now: int) -> None:
        if self.state is RunState.ABORTING:
            event = RunEvent.STOP
        elif self._is_reached():
            event = RunEvent.SUCCEED
        elif self.count(TargetMark.SKIPPED):
            event = RunEvent.LAPSE
        elif self.count(TargetMark.SUCCEEDED) == len(self.marks):
            event = RunEvent.SUCCEED
        else:
            event = RunEvent.FAIL
        self._go(event, now, Why.DONE)
        self.status.ended_at = now

    def _found(self, mark: TargetMark, begin: int, end: int) -> Iterator[int]:
        index = self.marks.find(mark, begin, end)
        while index >= 0:
            yield index
            index = self.marks.find(mark, index + 1, end)

    def _mark(self, index: int, mark: TargetMark) -> None:
        self._counts[TargetMark(self.marks[index])] -= 1
        self._counts[mark] += 1
        self.marks[index] = mark

    def _go(self, event: RunEvent, now: int, why: Why, said: str = "", by: str = "") -> None:
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise RunStateError(f"the run is {self.state}, so it cannot {event}")
        self.status.state = state
        self.status.steps = [*self.status.steps, RunStep(now, state, why, said, by)][-MOST_STEPS:]


def new_run(spec: RunSpec, total: int) -> FleetRun:
    """A run of so many targets that nobody has begun."""
    return FleetRun(spec, RunStatus(), bytearray([TargetMark.WAITING]) * total)
