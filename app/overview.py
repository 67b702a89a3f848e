"""The content of `GET /v1/overview`: this node asks the others at most every two seconds, whoever wants to know."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from app import __version__
from app.callbacks.pending import Pending
from app.commands.explain.explainer import SUBJECT as COMMAND
from app.commands.explain.explainer import Explainer
from app.commands.peer_query import PeerQuery, Question
from app.commands.send.unsent import error_of
from app.core.clock import Clock, wall_us
from app.core.commands.command import Command
from app.core.commands.diagnosis import CommandDiagnosis
from app.core.commands.misses import Target
from app.core.errors import CapacityError, UnavailableError
from app.core.last_hour import NOTHING, HourNumbers, LastHour, together
from app.core.overview import JudgedFailure, NodeDeath, NodeGlance, party_of
from app.node import Node
from app.observers.failures import Failure, Failures
from app.observers.recent import RecentCommands
from app.runtime.telemetry import Fill
from app.store.commands import CommandReader

KEPT_SECONDS: Final = 2.0
LOOKED_BACK_US: Final = 3_600_000_000
MINUTE_US: Final = 60_000_000
MOST_FAILURES: Final = 200
MOST_OPEN: Final = 50
MOST_METHODS: Final = 20
MOST_DEATHS: Final = 20
MOST_EXPLAINED: Final = 64
"""The number of failures that are explained for one overview; the others follow in the next ones."""
EXPLAINED_AT_ONCE: Final = 4
EXPLAINING_SECONDS: Final = 1.0
UNSETTLED_US: Final = 15_000_000
"""The verdict on a failure may still change for so long after it."""
MOST_SAID: Final = 300
"""The characters that are told of what a check says."""
SUBJECT: Final = "overview"
_OF_NOTHING: Final = asdict(Target(device="", names=(), topics=(), since=0, until=0))
"""Nodes of 0.2.0 know of no overview. They answer the rest of the question, which is about no command: so they live."""
_NOT_YET: Final = "it has not been explained yet"


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """A command that is open. `created_at` is in microseconds on the store's clock."""

    command_id: str
    device_id: str
    profile: str
    method: str
    created_at: int
    home_node: str


@dataclass(frozen=True, slots=True)
class ClusterGlance:
    """The cluster at an instant (µs). `complete` is false where nobody could say which nodes there are."""

    at: int
    nodes: Sequence[NodeGlance]
    complete: bool
    deaths: Sequence[NodeDeath]
    failures: Sequence[JudgedFailure]
    open: Sequence[OpenCommand]
    """The commands that have been open for longest, on each node."""
    last_hour: HourNumbers


@dataclass(frozen=True, slots=True)
class _NodeAnswer:
    """The answer of a node about itself."""

    glance: NodeGlance
    failures: Sequence[Failure]
    open: Sequence[OpenCommand]
    last_hour: LastHour
    deaths: Sequence[NodeDeath] = ()


class NodeDeaths:
    """The latest nodes that this one has taken for dead."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._latest: deque[NodeDeath] = deque(maxlen=MOST_DEATHS)

    def note(self, node_id: str) -> None:
        """Remember that a node has died just now."""
        self._latest.append(NodeDeath(node_id, self._now_us()))

    def read(self) -> Sequence[NodeDeath]:
        """Return those that are remembered, oldest first."""
        return [*self._latest]


class Overviews:
    """`glance` looks at this node; `open_commands` are the open ones here, oldest first."""

    def __init__(
        self,
        *,
        peers: PeerQuery,
        explainer: Explainer,
        store: CommandReader,
        failures: Failures,
        recent: RecentCommands,
        open_commands: Iterable[Pending],
        deaths: NodeDeaths,
        glance: Callable[[], Awaitable[NodeGlance]],
        clock: Clock,
    ) -> None:
        self.kept_seconds = KEPT_SECONDS
        self._peers = peers
        self._explainer = explainer
        self._store = store
        self._failures = failures
        self._recent = recent
        self._open_commands = open_commands
        self._deaths = deaths
        self._glance = glance
        self._clock = clock
        self._turn = asyncio.Lock()
        self._latest: ClusterGlance | None = None
        self._made_at = 0.0
        self._judged: Mapping[str, JudgedFailure] = {}
        peers.answers[SUBJECT] = self._answer

    async def read(self) -> ClusterGlance:
        """The overview, two seconds old at most. It is there in any case, and says what it lacks."""
        async with self._turn:
            if self._latest is None or self._clock.monotonic() - self._made_at >= self.kept_seconds:
                self._latest = await self._make()
                self._made_at = self._clock.monotonic()
            return self._latest

    async def after(self, seen: ClusterGlance) -> ClusterGlance:
        """Return the overview that comes after one that was seen, once it is due."""
        if self._latest is seen:
            await asyncio.sleep(max(0.0, self._made_at + self.kept_seconds - self._clock.monotonic()))
        return await self.read()

    async def _make(self) -> ClusterGlance:
        now = self._now_us()
        own = await self._own(now)
        told, silent, complete = [own], list[NodeGlance](), False
        if "store" not in own.glance.failing:  # else nobody can be asked, and that is all there is to say
            with suppress(UnavailableError, CapacityError):
                others, missing = await self._peers.ask({SUBJECT: now, COMMAND: "", "about": _OF_NOTHING}, _answer_of)
                told += others.values()
                silent = [NodeGlance(one, answered=False) for one in missing]
                complete = True
        failed = {one.command_id: one for each in told for one in each.failures}
        latest = sorted(failed.values(), reverse=True)[:MOST_FAILURES]
        return ClusterGlance(
            at=now,
            nodes=sorted((*(one.glance for one in told), *silent), key=lambda one: one.node_id),
            complete=complete,
            deaths=sorted({one for each in told for one in each.deaths}, key=lambda one: one.at),
            failures=await self._explained(latest, now),
            open=sorted((one for each in told for one in each.open), key=lambda one: one.created_at),
            last_hour=together([one.last_hour for one in told], now // MINUTE_US, MOST_METHODS),
        )

    async def _explained(self, latest: Sequence[Failure], now: int) -> Sequence[JudgedFailure]:
        """The failures with the verdicts that could be reached in time; the others follow in the next overview."""
        judged = {one.command_id: self._judged[one.command_id] for one in latest if one.command_id in self._judged}
        wanted = [one for one in latest if one.command_id not in judged]
        commands: Sequence[Command | None] = ()
        if wanted:
            with suppress(UnavailableError):
                commands = await self._store.get([one.command_id for one in wanted])
        known = [(one, command) for one, command in zip(wanted, commands, strict=False) if command is not None]
        fresh = {one.command_id: _unexplained(one, command) for one, command in known}
        permits = asyncio.Semaphore(EXPLAINED_AT_ONCE)

        async def explain(failure: Failure, command: Command) -> None:
            async with permits:
                with suppress(UnavailableError, CapacityError):
                    explanation = await self._explainer.explain(command)
                    fresh[command.id] = _judged(failure, command, explanation.judgement)

        with suppress(TimeoutError):
            async with asyncio.timeout(EXPLAINING_SECONDS), asyncio.TaskGroup() as tasks:
                for failure, command in known[:MOST_EXPLAINED]:
                    tasks.create_task(explain(failure, command))
        settled = {id_: one for id_, one in fresh.items() if one.verdict and one.at < now - UNSETTLED_US}
        self._judged = judged | settled
        shown = judged | fresh
        return [shown[one.command_id] for one in latest if one.command_id in shown]

    async def _own(self, now: int) -> _NodeAnswer:
        glance = await self._glance()
        return _NodeAnswer(
            glance,
            self._failures.since(now - LOOKED_BACK_US, MOST_FAILURES),
            [
                OpenCommand(one.command_id, one.device_id, one.profile, one.method, one.created_us, glance.node_id)
                for one in islice((one for one in self._open_commands if one.registered), MOST_OPEN)
            ],
            self._recent.read(),
            self._deaths.read(),
        )

    async def _answer(self, _question: Question) -> Mapping[str, Any]:
        own = await self._own(self._now_us())
        return {
            SUBJECT: {
                "state": own.glance.state,
                "version": own.glance.version,
                "age": own.glance.age_us,
                "checks": {name: said[:MOST_SAID] for name, said in own.glance.checks.items()},
                "open": own.glance.open,
                "fullest": own.glance.fullest,
            },
            "failures": [tuple(one) for one in own.failures],
            "open": [(one.command_id, one.device_id, one.profile, one.method, one.created_at) for one in own.open],
            "hour": own.last_hour.told(),
            "deaths": [tuple(one) for one in own.deaths],
        }

    def _now_us(self) -> int:
        return wall_us(self._clock)


async def glance_at(node: Node, fills: Mapping[str, Fill], open_here: int, clock: Clock) -> NodeGlance:
    """This node at a glance; `fills` are its buffers, `open_here` is the number of its open commands."""
    health = await node.health()
    name, fill = max(fills.items(), key=lambda one: one[1].size / max(one[1].bound, 1))
    return NodeGlance(
        node.info.node_id,
        answered=True,
        state=health.state,
        version=__version__,
        age_us=round((clock.wall() - node.info.started_at) * 1_000_000),
        checks=health.checks,
        open=open_here,
        fullest=(name, fill.size, fill.bound),
    )


def _answer_of(said: Mapping[str, Any]) -> _NodeAnswer:
    node = str(said["node"])
    if SUBJECT not in said:
        return _NodeAnswer(NodeGlance(node, answered=True), (), (), NOTHING)
    about = dict(said[SUBJECT])
    fullest = about["fullest"]
    glance = NodeGlance(
        node,
        answered=True,
        state=str(about["state"]),
        version=str(about["version"]),
        age_us=int(about["age"]),
        checks={str(name): str(one) for name, one in dict(about["checks"]).items()},
        open=int(about["open"]),
        fullest=None if fullest is None else (str(fullest[0]), int(fullest[1]), int(fullest[2])),
    )
    return _NodeAnswer(
        glance,
        [Failure(int(at), str(command_id)) for at, command_id in said["failures"]],
        [
            OpenCommand(str(command_id), str(device), str(profile), str(method), int(at), node)
            for command_id, device, profile, method, at in said["open"]
        ],
        LastHour.of(said["hour"]),
        [NodeDeath(str(node_id), int(at)) for node_id, at in said.get("deaths", ())],
    )


def _unexplained(failure: Failure, command: Command) -> JudgedFailure:
    return JudgedFailure(failure.at, command.id, command.device_id, command.profile, command.method, text=_NOT_YET)


def _judged(failure: Failure, command: Command, judgement: CommandDiagnosis) -> JudgedFailure:
    party = party_of(judgement.code, str(error_of(command).get("code", "")))
    return replace(_unexplained(failure, command), verdict=judgement.code, party=party, text=judgement.text)
