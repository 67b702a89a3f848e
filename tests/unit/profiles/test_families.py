"""Every shipped family: what its commands are published as, and how what its devices say is read."""

from __future__ import annotations

import json

import pytest

from app.core.errors import UndecodableMessageError
from app.core.profiles.response_reader import ResponseReader, names
from tests.unit.profiles.corpora import CORPORA, PROFILES, Command, Corpus, Frame, bytes_of, filled

ALL = ResponseReader(PROFILES.values())
"""One node that speaks all of them."""
COMMANDS = [pytest.param(one, each, id=f"{one.name}-{each.method}") for one in CORPORA for each in one.commands]
FRAMES = [pytest.param(one, each, id=f"{one.name}-{each.says}") for one in CORPORA for each in one.frames]


def test_each_shipped_profile_has_a_corpus() -> None:
    assert {one.name for one in CORPORA} == set(PROFILES)


@pytest.mark.parametrize(("corpus", "command"), COMMANDS)
def test_a_command_is_published_as_the_documents_say(corpus: Corpus, command: Command) -> None:
    published = corpus.profile.compose(command.facts(corpus.device))
    assert published.topic == filled(command.topic)
    if command.payload.startswith("hex:"):
        assert published.payload == bytes_of(command.payload)
        return
    said, wanted = published.payload.decode(), filled(command.payload).replace('"#"', filled("{id_number}"))
    assert said == wanted or json.loads(said) == json.loads(wanted)


@pytest.mark.parametrize(("corpus", "frame"), FRAMES)
@pytest.mark.parametrize("alone", [True, False])
def test_a_frame_is_read_as_the_documents_mean_it(corpus: Corpus, frame: Frame, *, alone: bool) -> None:
    """Also where one node speaks all families: none of them disturbs another one."""
    reader = ResponseReader([corpus.profile]) if alone else ALL
    facts = corpus.command(frame)
    try:
        first = reader.read(frame.message())
    except UndecodableMessageError as error:
        assert error.reason == frame.dropped  # noqa: PT017 - it is one of three outcomes
        return
    readings = [one for one in (first, *first.others) if one.profile == corpus.name]
    of_this = [one for one in readings if names(corpus.profile, facts, one)]
    if frame.dropped is not None or frame.of_another:
        assert of_this == []
        return
    (answer,) = of_this
    assert answer.state.value == frame.state
    assert frame.result is None or answer.result == frame.result.encode()
    assert frame.error is None or answer.error == frame.error.encode()
