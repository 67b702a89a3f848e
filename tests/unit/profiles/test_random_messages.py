"""Messages that no device of a family would send: they are read as nothing, or as what they have evidence for."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.commands.callback import Answer
from app.core.errors import UndecodableMessageError
from app.core.identifiers import name_of
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.correlation import Correlation
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.sources import BETWEEN
from app.core.topics import TopicTemplate
from tests.unit.profiles.corpora import CORPORA, Corpus, bytes_of, filled

FEW: int = 40
MANY: int = 200
"""Messages for each profile and seed."""
SEEDS: int = 50
SCRAPS: list[JsonValue] = [None, True, False, 0, -1, 1.5, 2**63, "", "ok", "ON", "é", "\x00", [], {}, [[]], {"": {}}]


class Mutator:
    """Makes messages out of frames: whole ones, torn ones, ones with other values, and noise."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._rng = random.Random(seed)
        self._frames = corpus.frames
        self._topics = [spec.topic for spec in corpus.profile.responses]

    def messages(self, count: int) -> Iterator[ReceivedMessage]:
        for _ in range(count):
            data = self._rng.choice(
                [None, None, b"", b"\xff", filled("{id}").encode(), bytes_of(filled("uuid:{id_uuid}"))]
            )
            user = tuple(self._rng.choice(self._frames).user_properties.items())
            yield ReceivedMessage(self._topic(), self._payload(), correlation_data=data, user_properties=user)

    def _topic(self) -> str:
        if self._rng.random() < 0.5:
            return filled(self._rng.choice(self._frames).topic)
        template: TopicTemplate = self._rng.choice(self._topics)
        words = ["d1", "x", "$", "é", "200", "a.b", "a:b", "{status}", filled("{id}"), filled("{id_number}")]
        levels = [self._rng.choice(words) if one is None else one for one in template.levels]
        if self._rng.random() < 0.2:
            levels[self._rng.randrange(len(levels))] = self._rng.choice([*words, ""])
        return "/".join(levels)

    def _payload(self) -> bytes:
        text = filled(self._rng.choice(self._frames).payload)
        match self._rng.randrange(4):
            case 0:
                return self._rng.randbytes(self._rng.randrange(20))
            case 1:
                return bytes_of(text)[: self._rng.randrange(len(text) + 1)]
            case 2:
                return bytes_of(text)
        try:
            return json.dumps(self._changed(json.loads(text))).encode()
        except ValueError:
            return bytes_of(text) + b"\x00"

    def _changed(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if self._rng.random() < 0.2:
            return self._rng.choice(SCRAPS)
        if isinstance(value, dict):
            kept = {key: self._changed(one) for key, one in value.items() if self._rng.random() > 0.1}
            return kept | ({self._rng.choice(["id", "status", "result", "x"]): 1} if self._rng.random() < 0.1 else {})
        return [self._changed(one) for one in value] if isinstance(value, list) else value


def evidence(answer: Answer, message: ReceivedMessage) -> bool:
    """True if what the answer is said to name stands in the message, all of it."""
    if answer.correlation is Correlation.ORDER:
        return True
    text = json.dumps(_json(message.payload), ensure_ascii=False)
    data = message.correlation_data or b""
    uuid = str(UUID(bytes=data)) if len(data) == 16 else ""
    said = (message.topic, message.payload.decode("utf-8", "replace"), text, data.decode("utf-8", "replace"), uuid)
    return all(_stands_in(part, said) for part in answer.value.split(BETWEEN))


def _json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None


def _stands_in(part: str, said: tuple[str, ...]) -> bool:
    return any(part in one or json.dumps(part)[1:-1] in one or f"{part}.0" in one for one in said)


def fits(profile: DeviceProfile, answer: Answer, message: ReceivedMessage) -> bool:
    """True if it came on a topic of the profile, and from the device that its topic or payload names."""
    came_on = any(spec.topic.parse(message.topic) is not None for spec in profile.responses)
    parts = map(name_of, answer.device_id.split(":"))
    said = message.topic + message.payload.decode("utf-8", "replace") + json.dumps(_json(message.payload))
    return came_on and all(part in said or json.dumps(part)[1:-1] in said for part in parts)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("corpus", CORPORA, ids=[one.name for one in CORPORA])
@settings(max_examples=SEEDS, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_messages_are_no_errors_and_match_by_evidence_only(corpus: Corpus, count: int, seed: int) -> None:
    reader = ResponseReader([corpus.profile])
    for message in Mutator(corpus, seed).messages(count):
        try:
            answer = reader.read(message)
        except UndecodableMessageError:
            continue
        for reading in (answer, *answer.others):
            assert evidence(reading, message), (reading, message)
            assert fits(corpus.profile, reading, message), (reading, message)
