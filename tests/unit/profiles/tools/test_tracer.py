"""The verdicts of a trace on messages, for each of the reasons that there are."""

from __future__ import annotations

import pytest

from app.cli.trace import lines_of, summary
from app.core.messages import ReceivedMessage
from app.profiles.loader import parse_profile
from app.profiles.tools.tracer import Tracer
from tests.unit.profiles.corpora import CORPORA, PROFILES, Corpus

LAMP = """
name = "lamp"
description = "A lamp"
[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}" }
[[response]]
name = "done"
topic = "lamps/{device_id}/done"
match = [{ path = "kind", is_in = ["answer"] }]
correlation = "id"
sources = [{ path = "ref" }]
confirm = ["again"]
rules = [
    { state = "failed", when = [{ path = "code", is_in = [1, 2] }] },
    { state = "succeeded", when = [{ path = "code", is_in = [0] }] },
]
[[event]]
name = "note"
topic = "lamps/{device_id}/note"
match = [{ path = "kind", present = true }]
type = "kind"
[[presence]]
topic = "lamps/{device_id}/there"
codec = "text"
offline = [{ path = "$", is_in = ["no"] }]
[[reply]]
name = "time"
topic = "lamps/{device_id}/ask"
match = [{ path = "what", is_in = ["time"] }]
to = "lamps/{device_id}/told"
payload = { now = "{now_ms}" }
"""
NOW = 1_732_000_000.5


def tracer() -> Tracer:
    return Tracer([parse_profile(LAMP, "lamp.toml"), PROFILES["homing"]])


@pytest.mark.parametrize(
    ("topic", "payload", "said", "outcome"),
    [
        (
            "lamps/l1/done",
            '{"kind":"answer","ref":"42","code":0}',
            "done, rules.1: succeeded for command '42' at l1",
            "succeeded",
        ),
        (
            "lamps/l1/done",
            '{"kind":"answer","ref":"42","code":2}',
            "done, rules.0: failed for command '42' at l1",
            "failed",
        ),
        (
            "lamps/l1/done",
            '{"kind":"else","ref":"42"}',
            'ignored as not_a_response: done needs that kind is "answer"',
            "ignored: not_a_response",
        ),
        (
            "lamps/l1/done",
            '{"kind":"answer","code":0}',
            "ignored as no_correlation: done: no source has a value, so it names no command",
            "ignored: no_correlation",
        ),
        (
            "lamps/l1/done",
            '{"kind":"answer","ref":"42","code":7}',
            "ignored as no_rule_holds: done: no rule holds",
            "ignored: no_rule_holds",
        ),
        (
            "lamps/l1/done",
            '{"kind":"answer","ref":"42","again":"43","code":0}',
            "ignored as correlation_contradicts: done: a path of confirm has something else than the source",
            "ignored: correlation_contradicts",
        ),
        ("lamps/l1/done", "on", "ignored as not_json: its codec cannot read it", "ignored: not_json"),
        ("lamps/l1/set", "{}", "a command to its device", "command"),
        ("lamps/l1/note", '{"kind":"hot"}', "event note of l1 of type 'hot'", "event"),
        (
            "lamps/l1/note",
            "{}",
            "ignored as not_an_event: the match of no kind of event holds, or its codec cannot read it",
            "ignored: not_an_event",
        ),
        ("lamps/l1/there", "no", "l1 has gone", "event"),
        ("lamps/l1/ask", '{"what":"time"}', "time: l1 would be replied on lamps/{device_id}/told", "question"),
        (
            "lamps/l1/ask",
            '{"what":"else"}',
            "ignored as not_a_question: the match of no kind of reply holds",
            "ignored: not_a_question",
        ),
    ],
)
def test_each_message_is_told_with_what_becomes_of_it_and_why(
    topic: str, payload: str, said: str, outcome: str
) -> None:
    one = tracer()
    size = len(payload)
    assert list(lines_of(one, ReceivedMessage(topic, payload.encode()), NOW, payloads=True)) == [
        f"07:06:40.500 {topic} ({size} bytes) {payload}",
        f"  lamp: {said}",
    ]
    assert list(summary(one)) == ["1 messages", f"  lamp: 1 {outcome}"]


def test_what_no_profile_has_and_what_is_retained_is_said() -> None:
    one = tracer()
    stranger = ReceivedMessage("else", b"\xff")
    assert list(lines_of(one, stranger, NOW, payloads=False)) == [
        "07:06:40.500 else (1 bytes)",
        "  no profile has this topic",
    ]
    kept = ReceivedMessage("lamps/l1/done", b'{"kind":"answer","ref":"42","code":0}', retain=True)
    assert list(lines_of(one, kept, NOW, payloads=False)) == [
        "07:06:40.500 lamps/l1/done (37 bytes, retained)",
        "  lamp: ignored as retained: it was said before anybody asked now",
    ]
    assert list(summary(one)) == ["2 messages, 1 of them on topics that no profile has", "  lamp: 1 ignored: retained"]


def test_long_payloads_are_cut_and_bytes_are_shown_in_hexadecimal() -> None:
    [first, _] = lines_of(tracer(), ReceivedMessage("else", b"x" * 300), NOW, payloads=True)
    assert first.endswith(f"(300 bytes) {'x' * 200} …")
    [first, _] = lines_of(tracer(), ReceivedMessage("else", b"\xff\x00"), NOW, payloads=True)
    assert first.endswith("(2 bytes) hex ff00")


def test_it_listens_to_all_that_the_profiles_send_and_read() -> None:
    own = ["lamps/+/ask", "lamps/+/done", "lamps/+/note", "lamps/+/set", "lamps/+/there"]
    assert [one for one in tracer().filters() if one.startswith("lamps")] == own


@pytest.mark.parametrize("corpus", CORPORA, ids=[one.name for one in CORPORA])
def test_a_trace_agrees_with_the_corpus_of_each_family(corpus: Corpus) -> None:
    """An answer that is read is one in the trace, and what is dropped has the same reason."""
    for frame in corpus.frames:
        seen = Tracer([corpus.profile]).hear(frame.message(), 0)
        outcomes = {one.outcome for one in seen}
        if frame.state is not None:
            assert frame.state in outcomes, frame.says
        elif frame.dropped is not None and outcomes and not outcomes & {"event", "question", "command"}:
            assert f"ignored: {frame.dropped}" in outcomes, frame.says


def test_what_nodes_say_to_themselves_is_named() -> None:
    one = tracer()
    for topic in ("homing/homing-canary/response", "lamps/homing-canary/done"):
        (seen,) = one.hear(ReceivedMessage(topic, b"n1 01JC"), 0)
        assert (seen.outcome, seen.sentence) == ("canary", "a node looks whether it hears what devices say")
    assert one.hear(ReceivedMessage("elsewhere/homing-canary", b"n1 01JC"), 0) == []
    assert one.counts == {("homing", "canary"): 1, ("lamp", "canary"): 1}
