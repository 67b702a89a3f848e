"""Explains what became of a command: what is on record of it, and what the nodes know besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from app.cluster.cluster import Cluster
from app.commands.peer_query import PeerQuery, Question
from app.core.commands.command import Command, CommandState
from app.core.commands.diagnosis import Case, CommandDiagnosis, DeviceSighting, Hop, NodeReport, judge
from app.core.commands.misses import MissedMessage, Near, Target, compare, plain
from app.core.commands.reach import DeliveryProgress
from app.core.errors import InvalidInputError
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import facts_of

ROOM_US: Final = 60_000_000
"""The time after the outcome of a command in which a message may come that has to do with it."""
CLOCKS_US: Final = 2_000_000
"""The difference that clocks of nodes and store may have: anything that came longer before a command is not about
it."""
MOST_REPORT: Final = 200
"""The characters of a report of progress that are told."""
SUBJECT: Final = "command"
"""The member of a question that says which command it is about."""

Recall = Callable[[str, Target], NodeReport]
"""Tells what this node remembers of a command."""


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """Something that happened to a command. `at` is in microseconds since the epoch, None where not known."""

    at: int | None
    node: str
    what: str
    topic: str | None = None
    reason: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class CommandExplanation:
    """The explanation of what became of a command."""

    command: Command
    timeline: Sequence[TimelineStep]
    near: Sequence[Near]
    """Messages that may have been meant as the answer, nearest first."""
    heard: Sequence[DeviceSighting]
    """The latest messages of the device, newest first."""
    judgement: CommandDiagnosis
    gaps: Sequence[str]


class Explainer:
    """Any node can explain any command."""

    def __init__(
        self,
        *,
        peers: PeerQuery,
        recall: Recall,
        cluster: Cluster,
        profiles: Mapping[str, DeviceProfile],
        elsewhere: Callable[[str, str], str | None],
        last_heard: Callable[[str], DeviceSighting | None],
        why_held: Callable[[Command], Awaitable[Sequence[str]]],
    ) -> None:
        self.elsewhere: Final = elsewhere
        """Returns the other profile on whose topics this node heard a device last, if it was on none of this one."""
        self.last_heard: Final = last_heard
        """Returns the last sighting of a device on this node."""
        self._why_held = why_held
        self._peers = peers
        self._recall = recall
        self._cluster = cluster
        self._profiles = profiles
        peers.answers[SUBJECT] = self._answer

    async def explain(self, command: Command) -> CommandExplanation:
        """StoreUnavailableError when nobody can say which nodes there are."""
        request_topic, target = self._target(command)
        own = self._recall(command.id, target)
        answers, silent = await self._peers.ask({SUBJECT: command.id, "about": asdict(target)}, _report_of)
        told = [own, *answers.values()]
        near = sorted(
            (
                near
                for one in told
                for miss in one.misses
                if (near := compare(miss, target)).concerns(command.id)  # nodes of 0.2.0 tell of more
            ),
            key=lambda one: (one.same_id or one.like_id, one.score, one.miss.at),
            reverse=True,
        )
        heard = sorted((one for each in told for one in each.heard), key=lambda one: one.at, reverse=True)
        restarted, orphaned = await self._starts_since(command)
        gaps = [*(f"{node} did not answer in time" for node in silent), *restarted]
        code, reach = _error_of(command)
        waits = await self._waits(command)
        case = Case(command, code, reach, near[0] if near else None, heard, gaps, waits, orphaned)
        missed = [one.miss for one in near]
        return CommandExplanation(
            command, _timeline(command, told, missed, request_topic), near, heard, judge(case), gaps
        )

    async def _waits(self, command: Command) -> Sequence[str]:
        return await self._why_held(command) if command.state is CommandState.HELD else ()

    async def _answer(self, question: Question) -> Mapping[str, Any]:
        return asdict(self._recall(str(question[SUBJECT]), Target(**question["about"])))

    def _target(self, command: Command) -> tuple[str | None, Target]:
        """The topic that it goes to, and what its answer would look like."""
        until = (command.finished_at or command.deadline) + ROOM_US
        names, topics, request = [command.id], list[str](), None
        profile = self._profiles.get(command.profile)
        if profile is not None:
            facts = facts_of(command)
            try:
                request = profile.compose(facts).topic
                expected = () if command.one_way else profile.expectations(facts)
            except InvalidInputError:
                expected = ()
            names += [one.value for one in expected if one.value]
            topics = [plain(one.topic) for one in expected]
        return request, Target(command.device_id, names, topics, command.begun_at - CLOCKS_US, until)

    async def _starts_since(self, command: Command) -> tuple[Sequence[str], bool]:
        """Return what is not known as nodes have come and gone since, and whether its home node is one of them."""
        nodes = await self._cluster.nodes()
        started = [node.node_id for node in nodes if node.started_at * 1_000_000 > command.begun_at]
        gaps = [f"{node_id} was started after it: what it knew before is lost" for node_id in started]
        leased = self._cluster.leased
        if leased is not None and command.home_node not in leased:
            gaps.append(f"its home node {command.home_node} is gone, and its notes with it")
            return gaps, True
        return gaps, command.home_node in started


def _report_of(said: Mapping[str, Any]) -> NodeReport:
    """The report in the answer of another node."""
    return NodeReport(
        str(said["node"]),
        [Hop(**one) for one in said["hops"]],
        [MissedMessage(**one) for one in said["misses"]],
        [DeviceSighting(**one) for one in said["heard"]],
    )


def _error_of(command: Command) -> tuple[str, DeliveryProgress]:
    """The code of an error that Homing made, and how far the command is said to have come."""
    try:
        error = orjson.loads(command.error or b"{}")
    except ValueError:
        return "", DeliveryProgress()
    known: Mapping[str, Any] = error.get("known") or {} if isinstance(error, dict) else {}
    code = str(error.get("code", "")) if isinstance(error, dict) else ""
    subscribed = {"some": True, "none": False}.get(str(known.get("subscribers")))
    return code, DeliveryProgress(known.get("published"), known.get("acknowledged"), subscribed)


def _timeline(
    command: Command, told: Sequence[NodeReport], missed: Sequence[MissedMessage], topic: str | None
) -> Sequence[TimelineStep]:
    home = command.home_node
    steps = [TimelineStep(command.created_at, home, "registered", reason=f"profile {command.profile}")]
    hops: Sequence[Hop] = next((one.hops for one in told if one.hops), ())
    for one in hops:
        where = topic if one.what in ("published", "acknowledged") else None
        report = command.progress if one.what == "progressed" else None
        reason = one.reason if report is None else f"latest report: {report.decode(errors='replace')[:MOST_REPORT]}"
        steps.append(TimelineStep(one.at, home, one.what, where, reason or None, one.size))
    steps += _claims(command)
    approval = command.approval
    if approval is not None and (decision := approval.decision) is not None:
        word = "approved" if decision.approves else "refused"
        said = f"by {decision.name}: {decision.note}" if decision.note else f"by {decision.name}"
        steps.append(TimelineStep(approval.decided_at, "", word, reason=said))
    steps += [TimelineStep(one.at, one.node, "missed", one.topic, one.reason) for one in missed]
    if command.finished_at is not None:
        steps.append(TimelineStep(command.finished_at, command.received_by or home, str(command.state)))
    if command.verified is not None:
        found = orjson.loads(command.verified)
        steps.append(TimelineStep(found["found_at"], "", "verified", found["topic"], f"it has {found['state']}"))
    if command.late is not None:
        at = orjson.loads(command.late).get("received_at")
        steps.append(TimelineStep(at if isinstance(at, int) else None, "", "late"))
    return sorted(steps, key=lambda step: step.at or command.created_at)


def _claims(command: Command) -> Iterator[TimelineStep]:
    """Yield the last claim of a command that was held: it is in force, or was undone."""
    hold = command.hold
    if hold is None or not hold.claims:
        return
    which = f"claim {hold.claims}"
    if hold.given_back_at is not None:
        yield TimelineStep(hold.given_back_at, command.home_node, "given_back", reason=f"{which}: nobody has it")
    else:  # its timeout began with that
        yield TimelineStep(command.begun_at, command.home_node, "claimed", reason=which)
