"""The tracer tells what each profile makes of the messages of a live broker: read, or ignored and why. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from app.core.commands.callback import Answer
from app.core.errors import UndecodableMessageError
from app.core.identifiers import CANARY
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.conditions import all_hold
from app.core.profiles.correlation import Correlation
from app.core.profiles.event_reader import EventReader, ReplyReader
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseKind, ResponseReader, answers_of
from app.core.topics import matches
from app.profiles.tools.trial import REASONS, besides, sentence_of, value_of

NOT_READ: Final = "ignored"
"""The beginning of the outcomes of messages that answer nothing."""


class Seen(NamedTuple):
    """The verdict of a profile on a message. `outcome` is a stable word, or `ignored` and a reason."""

    profile: str
    outcome: str
    sentence: str


class Tracer:
    """Reads messages as nodes do that speak these profiles, each profile for itself.

    `counts` are of pairs of profile and outcome; there are as many as profiles and reasons.
    """

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        self._profiles: Final = [_Ear(one) for one in profiles]
        self.counts: Final = Counter[tuple[str, str]]()
        self.heard = 0
        """All messages."""
        self.strangers = 0
        """The messages whose topic no profile has."""

    def filters(self) -> list[str]:
        """The topic filters that bring all that the profiles send and read."""
        return sorted({one for ear in self._profiles for one in ear.filters()})

    def read(self, message: ReceivedMessage, now_ms: int) -> list[Seen]:
        """Return what each profile that has the topic makes of it, and count nothing."""
        return [Seen(ear.name, *one) for ear in self._profiles for one in ear.hear(message, now_ms)]

    def hear(self, message: ReceivedMessage, now_ms: int) -> list[Seen]:
        """Return what each profile that has the topic makes of it."""
        seen = self.read(message, now_ms)
        self.heard += 1
        self.strangers += not seen
        self.counts.update((one.profile, one.outcome) for one in seen)
        return seen


class _Ear:
    """One profile."""

    def __init__(self, profile: DeviceProfile) -> None:
        self.name: Final = profile.name
        self._requests: Final = [one.topic for one in profile.requests]
        self._responses: Final = ResponseReader([profile])
        self._events: Final = EventReader([profile])
        self._replies: Final = ReplyReader([profile])

    def filters(self) -> Iterator[str]:
        yield from (topic.filter() for topic in self._requests)
        for reader in (self._responses, self._events, self._replies):
            yield from reader.filters()

    def hear(self, message: ReceivedMessage, now_ms: int) -> list[tuple[str, str]]:
        if CANARY in message.topic:
            heard = any(matches(one, message.topic) for one in self.filters())
            return [("canary", "a node looks whether it hears what devices say")] if heard else []
        read = list(self._answers(message))
        read += [("event", besides(one)) for one in self._events.read(message)]
        read += [
            ("question", f"{one.spec.name}: {one.device_id} would be replied on {one.spec.to.text}")
            for one in self._replies.read(message, now_ms)[:1]
        ]
        if read:
            return read
        if any(topic.parse(message.topic) is not None for topic in self._requests):
            return [("command", "a command to its device")]
        return [(f"{NOT_READ}: {reason}", f"ignored as {reason}: {why}") for reason, why in self._why_not(message)]

    def _answers(self, message: ReceivedMessage) -> Iterator[tuple[str, str]]:
        decided = set()
        for kind, values, document in self._responses.documents(message):
            if isinstance(document, UndecodableMessageError) or kind.scope in decided:
                continue
            if not all_hold(kind.spec.match, document):
                continue
            decided.add(kind.scope)
            try:
                answers = answers_of(kind, message, values, document)
            except UndecodableMessageError:
                continue
            if message.retain:
                yield f"{NOT_READ}: retained", "ignored as retained: it was said before anybody asked now"
                return
            for one in answers:
                yield one.state.value, _answer(kind, document, one)

    def _why_not(self, message: ReceivedMessage) -> list[tuple[str, str]]:
        """The reason of the first kind that has the topic, as nodes count it."""
        try:
            self._responses.read(message)
        except UndecodableMessageError as error:
            reason = error.reason
        else:
            return []
        if reason == "unexpected_topic":
            return self._no_event(message)
        return [(reason, "; ".join(self._whys(message, reason)) or REASONS.get(reason, "its codec cannot read it"))]

    def _no_event(self, message: ReceivedMessage) -> list[tuple[str, str]]:
        if self._events.hears(message.topic):
            return [("not_an_event", "the match of no kind of event holds, or its codec cannot read it")]
        return [("not_a_question", "the match of no kind of reply holds")] if self._replies.hears(message.topic) else []

    def _whys(self, message: ReceivedMessage, reason: str) -> Iterator[str]:
        for kind, _, document in self._responses.documents(message):
            spec = kind.spec
            if isinstance(document, UndecodableMessageError):
                continue
            failing = next((one for one in spec.match if not one.holds(document)), None)
            if failing is not None:
                yield f"{spec.name} needs that {sentence_of(failing)}"
            elif reason != "not_a_response":
                yield f"{spec.name}: {REASONS.get(reason, reason)}"


def _answer(kind: ResponseKind, document: JsonValue, answer: Answer) -> str:
    spec = kind.spec
    number = next(n for n, rule in enumerate(spec.rules) if all_hold(rule.when, document))
    names = {Correlation.ID: f"command {answer.value!a}", Correlation.VALUE: f"who sent {value_of(answer.value)}"}
    whom = names.get(answer.correlation, "who asked for this state" if spec.echo is not None else "who waits")
    return f"{spec.name}, rules.{number}: {answer.state} for {whom} at {answer.device_id}"
