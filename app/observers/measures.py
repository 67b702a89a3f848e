"""Measures and counts of commands. `app/metrics.py` reads them when somebody asks for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from app.callbacks.observer import Observer, Way
from app.callbacks.pending import Pending
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.reception import Reception
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.runtime.histograms import Histogram, StoreMeasures
from app.runtime.telemetry import Counters

OTHER_PROFILE: Final = "other"
"""Stands for profiles that this node does not know: a command of an earlier start, with other settings."""

_BY_WAY: Final = {Way.INLINE: "wakeup.delivered", Way.FETCHED: "wakeup.fetched", Way.RESYNC: "sweep.delivered"}
_BY_VERDICT: Final = {MatchResult.LATE: "response.late", MatchResult.PROGRESS: "response.progress"}


class CommandMeasures(Observer):
    """Durations are in seconds, in histograms; what is only counted goes under its name into the node's counters.

    `store` are the measures of the store's round trips, for whoever reads both.
    """

    def __init__(
        self, profiles: Iterable[str], node_id: str, counters: Counters, store: StoreMeasures | None = None
    ) -> None:
        names = (*sorted(profiles), OTHER_PROFILE)
        outcomes = [state for state in CommandState if state.final]
        self._node_id = node_id
        self._counters = counters
        self.store = store or StoreMeasures()
        self.commands: Counter[tuple[str, ...]] = Counter({(name, state): 0 for name in names for state in outcomes})
        """Ended commands by profile and outcome: each once, by whoever writes its record."""
        self.total = {key: Histogram() for key in self.commands}
        """The times by profile and outcome: from the call to the hand-over, or to the wake-up when nobody was
        parked."""
        self.register = Histogram()
        """The times from the call to the store's reply."""
        self.publish = Histogram()
        """The times from handing the command over to its PUBACK."""
        self.respond = {forwarded: Histogram() for forwarded in (False, True)}
        """The times of responses that were forwarded, and of others: from handing the command over to the wake-up."""
        self.record = Histogram()
        """The times on the receiving node from the response to the store's reply."""
        self.deliver = Histogram()
        """The times from the wake-up to the hand-over to a parked caller."""

    def joined(self, registration: Registration, opened_at: float) -> None:
        self._counters["command.joined"] += 1

    def unsent(self, command_id: str, error: BaseException) -> None:
        self._counters["publish.refused"] += 1

    def unconfirmed(self, command_id: str) -> None:
        self._counters["publish.unconfirmed"] += 1

    def unmatched(self, command_id: str) -> None:
        self._counters["publish_unmatched"] += 1

    def unpromised(self, topic: str) -> None:
        self._counters["response.qos0"] += 1

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        """Measure and count what was recorded. What is good for nothing is told as dropped, too, and counted there."""
        self.record.observe(now - arrived_at)
        if recorded.verdict is MatchResult.WON:
            self._counters["response.local" if self._node_id in recorded.waiting else "response.forwarded"] += 1
        elif (name := _BY_VERDICT.get(recorded.verdict)) is not None:
            self._counters[name] += 1
            if recorded.verdict is MatchResult.LATE and _contradicts(answer, recorded.outcome):
                self._counters["probe.contradicted"] += 1

    def unrecorded(self, answer: Answer) -> None:
        self._counters["response.not_recorded"] += 1

    def brought(self, outcome: Outcome, way: Way) -> None:
        self._counters[_BY_WAY[way]] += 1

    def closed(self, pending: Pending) -> None:
        """Measure and count a command that has ended.

        One that an earlier start of this node began is counted, and not measured.
        """
        key: tuple[str, ...] = (pending.profile, pending.state)
        if key not in self.total:
            key = (OTHER_PROFILE, pending.state)
        self.commands[key] += 1
        sent, closed, delivered = pending.published_at, pending.closed_at, pending.delivered_at
        if closed is None or pending.registered_at is None:
            return
        self.register.observe(pending.registered_at - pending.opened_at)
        if sent is not None:
            if pending.acknowledged_at is not None:
                self.publish.observe(pending.acknowledged_at - sent)
            if pending.received_by is not None and not _found_by_a_probe(pending.reception):
                self.respond[pending.received_by != self._node_id].observe(closed - sent)
        if delivered is not None:
            self.deliver.observe(delivered - closed)
        self.total[key].observe((closed if delivered is None else delivered) - pending.opened_at)

    def foreign(self, outcome: Outcome) -> None:
        """The home died, or forgot the command as it could not be sent.

        Not what a caller cancelled here: its home counts that.
        """
        if outcome.state is not CommandState.CANCELLED:
            self.commands[OTHER_PROFILE, outcome.state] += 1


def _found_by_a_probe(reception: Reception | None) -> bool:
    return reception is not None and reception.finding is not None


def _contradicts(answer: Answer, outcome: Outcome | None) -> bool:
    """Return whether a late answer says something else than what a probe had settled."""
    return outcome is not None and _found_by_a_probe(outcome.reception) and outcome.state is not answer.state
