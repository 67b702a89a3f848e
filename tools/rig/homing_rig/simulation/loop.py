"""An event loop on virtual time, on which each simulated process has a lane that can be paused and killed.

What one lane has made ready runs in its order, as asyncio promises; which of several lanes is next is drawn. Nothing
ever waits in real time: when no lane has anything to do, the clock moves to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

_Ts = TypeVarTuple("_Ts")
_T = TypeVar("_T")

MOST_STEPS: Final = 200_000
"""The steps without time passing after which they are no work but a spin."""
KEPT_TASKS: Final = 256
"""A lane forgets tasks that have ended when it has so many more than the last time."""


class SimulatorError(Exception):
    """The simulation itself is at fault, or what it simulates can never go on: this is no breach of an invariant."""


class Lane:
    """One process: all that runs under its context, until it is killed."""

    __slots__ = ("_kept", "context", "dead", "held", "name", "queued", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        """The tasks of the lane, even when it is dead: when the last reference to one goes, Python runs its
        `finally`."""
        self.dead = False
        self.held = 0
        """The number of pauses that hold the lane."""
        self.queued = False
        self._kept = KEPT_TASKS
        self.context: Final = copy_context()
        self.context.run(_LANE.set, self)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold on to a task for as long as it may run."""
        self.tasks.append(task)
        if len(self.tasks) > self._kept:
            self.tasks = [one for one in self.tasks if not one.done()]
            self._kept = 2 * len(self.tasks) + KEPT_TASKS


_LANE: ContextVar[Lane] = ContextVar("lane")


def lane_name() -> str:
    """The name of the lane that takes this step."""
    lane = _LANE.get(None)
    return "world" if lane is None else lane.name


def _nothing() -> None:
    """Stands for what a cancelled handle would have called, so that nothing of that is kept."""


class _Step(asyncio.Handle):
    """A handle with nothing but what is needed to run it, or not to: a run makes hundreds of thousands."""

    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class _Timer(asyncio.TimerHandle):
    """As `_Step`, and due at an instant."""

    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when

    def cancel(self) -> None:
        if not self._cancelled:
            self._loop._timer_handle_cancelled(self)
            self._cancelled = True
            self._callback, self._args = _nothing, ()


class SimLoop(asyncio.BaseEventLoop):
    """Runs lanes. `chance` draws which is next."""

    get_debug = bool
    """False, as `bool()` is: each future asks for it."""

    def __init__(self, chance: Random, most_steps: int = MOST_STEPS) -> None:
        super().__init__()
        self._most_steps = most_steps
        self.steps = 0
        self.now = 0.0
        """Virtual seconds since the loop was made."""
        self.world: Final = Lane("world")
        """The lane of things that belong to no process: the plan of faults, and the judge."""
        self._chance = chance
        self._runnable: list[Lane] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Lane]] = []
        self._numbers = count()
        self._still = 0
        self._cancelled_timers = 0

    def time(self) -> float:
        """Return `now`, as asyncio asks for it."""
        return self.now

    def kill(self, lane: Lane) -> None:
        """As SIGKILL: no further step of it ever runs, and nothing of it says good-bye."""
        lane.dead = True
        self._unqueue(lane)

    def hold(self, lane: Lane) -> None:
        """As SIGSTOP: what becomes ready or due waits for `release`."""
        lane.held += 1
        self._unqueue(lane)

    def release(self, lane: Lane) -> None:
        """As SIGCONT."""
        lane.held -= 1
        self._queue(lane)

    def skip(self, seconds: float) -> None:
        """Let time pass without anybody noticing."""
        self.now += seconds

    # what asyncio calls

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        lane = _LANE.get(self.world) if context is None else context.get(_LANE, self.world)
        handle = _Step(callback, args, context)
        if lane.dead:
            handle.cancel()
        else:
            lane.ready.append(handle)
            if not (lane.queued or lane.held):
                lane.queued = True
                self._runnable.append(lane)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        del callback, args, context
        raise SimulatorError("a thread speaks to the loop: nothing in a simulation may run in threads")

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        lane = _LANE.get(self.world) if context is None else context.get(_LANE, self.world)
        timer = _Timer(when, callback, args, self, context)
        if lane.dead:
            timer.cancel()
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), timer, lane))
        return timer

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._lane(context).keep(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - as a thread hands it over
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_later(self._chance.uniform(0.0001, 0.01), work)
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        del handle
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and 2 * self._cancelled_timers > len(self._timers):  # noqa: PLR2004
            self._timers = [one for one in self._timers if not one[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Take turns until the loop is to stop: `run_forever` calls this once."""
        runnable, chance = self._runnable, self._chance.random
        while not self._stopping:  # type: ignore[attr-defined]
            if not runnable:
                self._advance()
            lane = runnable[int(chance() * len(runnable))] if len(runnable) > 1 else runnable[0]
            self._take_turn(lane)
            self._still += 1
            if self._still > self._most_steps:
                raise SimulatorError(
                    f"{lane.name} spins: {self._most_steps} turns at {self.now:.3f} s and no time passes"
                )
            if lane.queued and not lane.ready:
                lane.queued = False
                runnable.remove(lane)

    def _take_turn(self, lane: Lane) -> None:
        ready = lane.ready
        for _ in range(len(ready)):
            if lane.dead or lane.held:
                break
            handle = ready.popleft()
            if not handle._cancelled:
                self.steps += 1
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does, whatever a callback raises
                    self.call_exception_handler({"message": f"Exception in {handle!r}", "exception": error})

    def _advance(self) -> None:
        timers, runnable = self._timers, self._runnable
        while not runnable:
            if not timers:
                raise SimulatorError(f"deadlock at {self.now:.3f} s: nobody has anything to do, ever again")
            when = timers[0][0]
            if when > self.now:
                self.now, self._still = when, 0
            while timers and timers[0][0] <= self.now:
                _, _, timer, lane = heapq.heappop(timers)
                if timer._cancelled:
                    self._cancelled_timers -= 1
                    continue
                lane.ready.append(timer)  # also of a dead lane: what it refers to must not end yet
                if not (lane.queued or lane.dead or lane.held):
                    lane.queued = True
                    runnable.append(lane)

    def _queue(self, lane: Lane) -> None:
        if not (lane.queued or lane.dead or lane.held) and lane.ready:
            lane.queued = True
            self._runnable.append(lane)

    def _unqueue(self, lane: Lane) -> None:
        if lane.queued:
            lane.queued = False
            self._runnable.remove(lane)

    def _lane(self, context: Context | None) -> Lane:
        return _LANE.get(self.world) if context is None else context.get(_LANE, self.world)


def bury(lanes: list[Lane]) -> None:
    """End what never runs again. Each `finally` does run now, and reaches nobody: all lanes are dead."""
    for lane in lanes:
        lane.dead = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what a `finally` begins is never awaited
        for lane in lanes:
            tasks, lane.tasks = lane.tasks, []
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            lane.tasks.clear()
            lane.ready.clear()
