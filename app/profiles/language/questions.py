"""The questions of probes, and what a file must not say of them: being asked harms nothing, and an answer is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.core.access.patterns import fits
from app.core.errors import InvalidInputError
from app.core.profiles.catalogue import Catalogue, Danger
from app.core.profiles.lanes import LaneOrder
from app.profiles.language.approvals import ApprovalTable
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import template
from app.profiles.language.lanes import LaneTable
from app.profiles.language.probes import ProbeTable, QuestionTable
from app.profiles.language.tables import RequestTable, ResponseTable

_CERTAIN = ("id", "value")
"""The correlations by which a device names the question that it answers."""


@dataclass(frozen=True, slots=True)
class QuestionsOfFile:
    """The other tables of a file, by which questions are judged."""

    probes: Sequence[ProbeTable]
    requests: Sequence[RequestTable]
    answering: Callable[[str], Sequence[ResponseTable]]
    """Return the kinds of response of a method."""
    catalogue: Catalogue
    lanes: Sequence[LaneTable]
    approvals: Sequence[ApprovalTable]
    parts: Sequence[str]
    named: Sequence[str]
    """The methods that the file names."""

    def faults(self) -> Iterator[ProfileFault]:
        """The faults of all questions."""
        for index, probe in enumerate(self.probes):
            if probe.ask is None:
                continue
            for sentence in self._faults_of(probe.ask):
                yield ProfileFault(("probe", index, "ask", "method"), sentence)
            try:
                self.catalogue.check("this profile", probe.ask.method, probe.ask.params)
            except InvalidInputError as error:
                yield ProfileFault(("probe", index, "ask", error.field), error.reason)
            if probe.tells_of_failure:
                for sentence in (*self._way_faults(probe, probe.ask), *self._lane_faults(probe)):
                    yield ProfileFault(("probe", index, "not_done"), sentence)

    def _faults_of(self, ask: QuestionTable) -> Iterator[str]:
        method, request = ask.method, self._request(ask.method)
        if request is None:
            yield f"{method!a} is published by no request; allowed: methods of the profile"
        elif method not in request.repeatable:
            yield f"{method!a} is not repeatable, and it is asked again and again; allowed: {self._repeatable()}"
        known = self.catalogue.methods.get(method)
        if known is not None and known.danger is Danger.HIGH:
            yield f"{method!a} is dangerous; allowed: methods that harm nothing"
        kinds = self.answering(method)
        if not kinds or any(one.correlation not in _CERTAIN for one in kinds):
            yield f"{method!a} is not answered by its id or a value, so that an answer may be to something else"
        tables: Mapping[str, Sequence[LaneTable | ApprovalTable | ProbeTable]] = {
            "lane": self.lanes,
            "approval": self.approvals,
            "probe": self.probes,
        }
        for key, some in tables.items():
            if any(fits(pattern, method) for one in some for pattern in one.methods):
                yield f"{method!a} is in a [[{key}]] itself, which a question does not wait for"

    def _way_faults(self, probe: ProbeTable, ask: QuestionTable) -> Iterator[str]:
        """Messages overtake each other between topics: only on one of them is a question behind the command."""
        way = self._request(ask.method)
        if way is None:
            return
        strangers = set(template(way.topic).names) - {"device_id", *self.parts}
        elsewhere = [one for one in self._methods_of(probe) if self._request(one) is not way]
        if strangers or elsewhere:
            yield (
                "needs a question on the topic of the command, which it then cannot overtake; allowed: an ask of the "
                "same [[request]], whose topic has nothing but the device in it"
            )

    def _lane_faults(self, probe: ProbeTable) -> Iterator[str]:
        for method in self._methods_of(probe):
            lane = next((one for one in self.lanes if any(fits(pattern, method) for pattern in one.methods)), None)
            if lane is None or lane.width > 1 or LaneOrder(lane.order) is LaneOrder.FIFO_ACK:
                yield (
                    f"needs {method} to be alone: another command in flight may undo it; allowed: methods of a lane of "
                    "width 1, and of another order than fifo_ack"
                )

    def _methods_of(self, probe: ProbeTable) -> list[str]:
        """The methods of a probe, and its patterns, which stand for those that no file names."""
        known = [one for one in self.named if any(fits(pattern, one) for pattern in probe.methods)]
        return list(dict.fromkeys((*known, *probe.methods)))

    def _request(self, method: str) -> RequestTable | None:
        for one in self.requests:
            if one.methods is None or any(fits(method, name) for name in one.methods):
                return one
        return None

    def _repeatable(self) -> str:
        found = sorted({method for one in self.requests for method in one.repeatable})
        return ", ".join(found) or "methods that a request calls repeatable"
