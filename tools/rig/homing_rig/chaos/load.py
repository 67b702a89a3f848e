"""The callers: they send commands to nodes in turn, and go to another node with their key when one is gone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import aiohttp
import orjson

from app.core.commands.command import CommandState
from homing_rig.chaos.balancers import Choose
from homing_rig.chaos.history import GONE, Fail, FinalRead, Invoke, Mode, Ok, OperationKind, Unknown
from homing_rig.chaos.recorder import Recorder
from homing_simulator.families import ECHO

MAX_OPEN: Final = 30_000
"""Commands whose callers wait at the same time; a bound, not a figure."""
RETRY_PAUSE: Final = (0.05, 0.25)
"""Seconds between two attempts of a caller, besides those that the node asked for."""
MOST_DOUBLINGS: Final = 4
"""The number of times that `RETRY_PAUSE` doubles where all nodes have the same trouble, as the pauses of any client
do."""
SHARED: Final = "store-unavailable"
"""The problem that all nodes have at once. With any other one the next node is asked soon."""
HANG_UP: Final = 0.3
READERS: Final = 32

_OK, _ACCEPTED, _NOT_FOUND, _UNAVAILABLE, _DEADLINE = 200, 202, 404, 503, 504
_DEFINITE: Final = frozenset(
    f"urn:homing:problem:{slug}"
    for slug in ("broker-unavailable", "device-busy", "limit-reached", "node-draining", "not-ready", "not-sent")
)
"""Problems that say that nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The load to send. Ends after `commands` or after `seconds`, whichever is given."""

    rate: float | None = None
    """Commands offered per second, whatever becomes of them; with None, `in_flight` callers take turns."""
    in_flight: int = 64
    seconds: float | None = None
    commands: int | None = None
    share_async: float = 0.5
    timeout: float = 10.0
    """The timeout of the commands, in seconds."""
    attempt_seconds: float = 15.0
    """The seconds after which a caller takes its node for gone."""
    patience: float = 30.0
    """The time for which a caller goes on trying."""
    attempts: int = 1_000
    devices: Sequence[str] = ()
    profile: str = "homing"
    group: str = "load"
    """A name to tell its callers from those of other jobs of the run."""
    turns: bool = False
    """Each of the callers in flight has a device of its own and sends to it one command after the other."""
    hold: float | None = None
    """The seconds for which the commands may wait for their device; None: not at all."""
    lane: str | None = None
    """The lane of its device that each command goes through, as the profile has it."""
    share_hung_up: float = 0.0
    """The share of attempts whose callers hang up within HANG_UP seconds and try again."""


@dataclass(slots=True)
class Call:
    """A command as its caller knows it at the end."""

    number: int
    group: str
    device: str
    mode: Mode
    began: float
    timeout: float
    command_id: str | None = None
    answer: str = "unanswered"
    """`final`, `accepted` (202) or `unanswered`."""
    state: str | None = None
    ended: float = 0.0
    attempts: int = 0
    error: str = ""
    asked: float = 0.0
    """The seconds that the last answer asked the caller to wait, where another node could do no better."""

    @property
    def seconds(self) -> float:
        """From the first attempt to the answer."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that was answered with an outcome or 202."""

    began: float
    """Loop time."""
    node: str
    mode: Mode
    seconds: float


@dataclass(slots=True)
class Load:
    """Sends jobs and remembers every call. `choose` names the node for the next attempt, and where to reach it."""

    recorder: Recorder
    session: aiohttp.ClientSession
    choose: Choose
    seed: int
    calls: list[Call] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    """Attempts without an outcome, by reason."""
    refused_in: list[tuple[str, float]] = field(default_factory=list)
    """Reason and seconds of each attempt that a node answered without an outcome."""
    open: int = 0
    late: float = 0.0
    """The most seconds by which a command was sent after its turn: then the rig itself was short of a processor."""
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.seed} load")

    async def run(self, job: Job) -> list[Call]:
        """Send everything; returns the calls when all callers are answered or gave up."""
        first = len(self.calls)
        if job.rate is None:
            await self._closed_loop(job)
        else:
            await self._open_loop(job)
        return [call for call in self.calls[first:] if call.group == job.group]

    async def _closed_loop(self, job: Job) -> None:
        until = None if job.seconds is None else self.recorder.now() + job.seconds
        left = iter(range(job.commands if job.commands is not None else 1 << 62))

        async def caller(number: int) -> None:
            for count in left:
                if until is not None and self.recorder.now() >= until:
                    return
                await self._call(job, job.devices[(number if job.turns else count) % len(job.devices)])

        await asyncio.gather(*(caller(number) for number in range(job.in_flight)))

    async def _open_loop(self, job: Job) -> None:
        began = self.recorder.now()
        rate = job.rate or 1.0
        total = job.commands if job.commands is not None else round((job.seconds or 0.0) * rate)
        tasks: set[asyncio.Task[None]] = set()
        for count in range(total):
            wait = began + count / rate - self.recorder.now()
            self.late = max(self.late, -wait)
            if wait > 0:
                await asyncio.sleep(wait)
            while self.open >= MAX_OPEN:
                await asyncio.sleep(0.01)
            task = asyncio.get_running_loop().create_task(self._call(job, job.devices[count % len(job.devices)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _call(self, job: Job, device: str) -> None:
        number = len(self.calls)
        mode = Mode.ASYNC if self._rng.random() < job.share_async else Mode.SYNC
        call = Call(number, job.group, device, mode, self.recorder.now(), job.timeout)
        self.calls.append(call)
        self.open += 1
        try:
            await self._until_answered(job, call)
        finally:
            self.open -= 1
            call.ended = self.recorder.now()

    async def _until_answered(self, job: Job, call: Call) -> None:
        give_up, refusals = call.began + job.patience, 0
        while call.attempts < job.attempts and (call.attempts == 0 or self.recorder.now() < give_up):
            call.attempts += 1
            if await self._attempt(job, call):
                return
            refusals = refusals + 1 if call.asked else 0
            await asyncio.sleep(call.asked + self._rng.uniform(*RETRY_PAUSE) * 2 ** min(refusals, MOST_DOUBLINGS))

    async def _attempt(self, job: Job, call: Call) -> bool:
        """One request; whether the caller is content with the answer."""
        node, url = self.choose()
        op = next(self.recorder.operations)
        began = self.recorder.now()
        nonce = str(call.number)
        self.recorder.write(
            Invoke(
                at=began,
                op=op,
                caller=f"{call.group}-{call.number}",
                node=node,
                kind=OperationKind.COMMAND,
                timeout=job.timeout,
                hold=job.hold or 0.0,
                device=call.device,
                nonce=nonce,
                key=f"key-{call.number}",
                lane=job.lane,
                mode=call.mode,
            )
        )
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"key-{call.number}"}
        if call.mode is Mode.ASYNC:
            headers["Prefer"] = "respond-async"
        body = {
            "method": "take_off",
            "params": {ECHO: nonce},
            "timeout": f"{round(job.timeout * 1000)}ms",
            "profile": job.profile,
            **({} if job.hold is None else {"hold": f"{round(job.hold)}s"}),
        }
        try:
            async with asyncio.timeout(self._waits(job)):
                request = self.session.post(
                    f"{url}/v1/devices/{call.device}/commands", data=orjson.dumps(body), headers=headers
                )
                async with request as response:
                    status, replayed = response.status, "Idempotent-Replayed" in response.headers
                    said = _object(await response.read())
                    call.asked = _asked(said, response.headers)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._no_answer(call, op, began, error)
            return False
        if not self._answered(call, op, began, status, said, replayed=replayed):
            return False
        seconds = self.recorder.now() - began
        self.attempts.append(Attempt(asyncio.get_running_loop().time() - seconds, node, call.mode, seconds))
        return True

    def _waits(self, job: Job) -> float:
        """Return how many seconds the next attempt lasts at most."""
        hangs_up = job.share_hung_up > self._rng.random()
        return self._rng.uniform(0, HANG_UP) if hangs_up else job.attempt_seconds

    def _no_answer(self, call: Call, op: int, began: float, error: Exception) -> None:
        now = self.recorder.now()
        refused = isinstance(error, aiohttp.ClientConnectorError)
        reason = "refused" if refused else "timeout" if isinstance(error, TimeoutError) else "reset"
        kind = Fail if refused else Unknown
        self.recorder.write(kind(at=now, op=op, latency=now - began, reason=reason))
        self.problems[reason] += 1
        call.error = reason

    def _answered(
        self, call: Call, op: int, began: float, status: int, said: dict[str, Any], *, replayed: bool
    ) -> bool:
        now = self.recorder.now()
        latency = now - began
        problem = str(said.get("type", ""))
        slug = problem.rpartition(":")[2] or str(status)
        if status in (_OK, _ACCEPTED):
            call.command_id, call.state = said["id"], said["state"]
            final = CommandState(said["state"]).final
            call.answer = "final" if final else "accepted"
            self.recorder.write(
                Ok(
                    at=now,
                    op=op,
                    latency=latency,
                    status=status,
                    replayed=replayed,
                    command_id=said["id"],
                    **_facts(said),
                )
            )
            return True
        command_id = said.get("command_id")
        if status == _DEADLINE and command_id:
            call.command_id, call.state, call.answer = command_id, CommandState.TIMED_OUT.value, "final"
            self.recorder.write(
                Ok(
                    at=now,
                    op=op,
                    latency=latency,
                    status=status,
                    replayed=replayed,
                    command_id=command_id,
                    state=call.state,
                )
            )
            return True
        definite = problem in _DEFINITE or (status < 500 and status != _NOT_FOUND)  # noqa: PLR2004 - 4xx
        kind = Fail if definite else Unknown
        self.recorder.write(kind(at=now, op=op, latency=latency, status=status, command_id=command_id, reason=slug))
        self.problems[slug] += 1
        self.refused_in.append((slug, latency))
        call.error = slug
        return False  # also of `not-sent`: the key is free, and the next try with it is a new command


def _facts(said: dict[str, Any]) -> dict[str, Any]:
    """The facts that a completion or a final read tells of a command."""
    late = said.get("late")
    return {
        "state": said["state"],
        "result_nonce": _echo(said.get("result")),
        "late": late is not None,
        "late_nonce": _echo(late.get("result")) if isinstance(late, dict) else None,
        "overrun": _overrun(said),
        "claims": (said.get("hold") or {}).get("claims"),
    }


def _overrun(said: dict[str, Any]) -> float | None:
    finished, deadline = said.get("finished_at"), said.get("deadline")
    if finished is None or deadline is None:
        return None
    return (datetime.fromisoformat(finished) - datetime.fromisoformat(deadline)).total_seconds()


def _echo(result: object) -> str | None:
    echoed = result.get(ECHO) if isinstance(result, dict) else None
    return echoed if isinstance(echoed, str) else None


def _asked(said: dict[str, Any], headers: Mapping[str, str]) -> float:
    return float(headers.get("Retry-After", 0)) if str(said.get("type", "")).endswith(SHARED) else 0.0


def _object(body: bytes) -> dict[str, Any]:
    said = orjson.loads(body)
    return said if isinstance(said, dict) else {}


@dataclass(slots=True)
class Finals:
    """The final reads: what the nodes say in the end of every command that a caller or a device knows."""

    recorder: Recorder
    session: aiohttp.ClientSession
    choose: Choose
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Command id -> what was read, or an empty object for one that is gone."""
    _read_on: dict[str, str] = field(default_factory=dict)

    async def read_all(self, ids: Sequence[str], *, until: float) -> None:
        """Read every command until it has an outcome, or until that time of the run; then note it."""
        left = iter(ids)

        async def reader() -> None:
            for command_id in left:
                await self._read(command_id, until)

        await asyncio.gather(*(reader() for _ in range(READERS)))

    async def _read(self, command_id: str, until: float) -> None:
        while True:
            node, said = await self._ask(command_id)
            state = str(said.get("state", GONE))
            if (node and (state == GONE or CommandState(state).final)) or self.recorder.now() >= until:
                break
            await asyncio.sleep(0.1)
        if node:
            self.commands[command_id], self._read_on[command_id] = said, node
            facts = _facts(said) | {"ended": self._ended(said)} if said else {"state": GONE}
            self.recorder.write(FinalRead(at=self.recorder.now(), node=node, command_id=command_id, **facts))

    def _ended(self, said: dict[str, Any]) -> float | None:
        finished = said.get("finished_at")
        return None if finished is None else self.recorder.instant(datetime.fromisoformat(finished).timestamp())

    async def _ask(self, command_id: str) -> tuple[str, dict[str, Any]]:
        """The node that answered, '' for none, and what it said; nothing for a command that is gone."""
        node, url = self.choose()
        if node == self._read_on.get(command_id):  # read before: another node must say the same
            node, url = self.choose()
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with asyncio.timeout(5.0), self.session.get(f"{url}/v1/commands/{command_id}") as response:
                said = _object(await response.read())
                if response.status == _OK:
                    return node, said
                if response.status == _NOT_FOUND:
                    return node, {}
        return "", {}
