"""Probes: what their files may say, and that a state settles only what it surely speaks of."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.commands.command import CommandState
from app.core.errors import ConfigurationError
from app.core.payload import JsonValue
from app.core.profiles.probes import (
    Probe,
    ProbeEvidence,
    ProbeFinding,
    ProbeLook,
    ToldState,
    Unsettled,
    judge_state,
)
from app.core.profiles.profile import to_json
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import load_profiles, parse_profile
from tests.unit.profiles.test_interlocks import HEAD
from tests.unit.profiles.test_lanes import CLOSED

S = CommandState
SECOND: Final = 1_000_000
ACKNOWLEDGED: Final = 1_000 * SECOND
TOLD: Final = ACKNOWLEDGED + 5 * SECOND
NOW: Final = ACKNOWLEDGED + 7 * SECOND
TOPIC: Final = "d/a/state"


def probe(methods: str = '["open"]', *further: str, topic: str = "d/{device_id}/state") -> str:
    return "\n".join(("[[probe]]", f"methods = {methods}", f'topic = "{topic}"', *further, ""))


DONE: Final = 'done = [{ path = "cover.state", is_in = [1] }, { path = "volts", at_least = 12 }]'
GOAL: Final = probe('["open"]', DONE, "goal = true")
BOUND: Final = probe(
    '["fly_*"]',
    'done = [{ path = "end", is_in = ["ok"] }]',
    'not_done = [{ path = "end", is_in = ["aborted"] }]',
    'bound = [{ path = "flight", equals = "{params.flight}" }]',
    'within = "5s"',
)


NOT_DONE: Final = 'not_done = [{ path = "cover.state", is_in = [0] }]'
LANE: Final = '[[lane]]\nname = "cover"\nmethods = ["open"]\n'
APPROVAL: Final = '[[approval]]\nmethods = ["*"]\n'
DANGEROUS: Final = '[[method]]\nname = "again"\ntitle = "Again"\ndanger = "high"\n'
TAKES_NOTHING: Final = (
    '[[method]]\nname = "again"\ntitle = "Again"\nparams = { type = "object", additionalProperties = false }\n'
)
BY_ORDER: Final = (
    HEAD.replace('description = ""', 'description = ""\nquarantine_seconds = 1')
    .replace('"id"\nsources', '"order"\nx')
    .replace('x = [{ path = "id" }]\n', "")
)


def asking(method: str = "again", *, after: str = "2s", more: str = "", lane: str = LANE, head: str = "") -> str:
    """A probe that asks, and takes the answer of a device for a sign that it did not do what was asked for."""
    ask = f'ask = {{ method = "{method}"{", " if more else ""}{more} }}'
    return head + lane + probe('["open"]', DONE, NOT_DONE, "goal = true", ask, f'after = "{after}"', 'within = "8s"')


def of(text: str, method: str) -> Probe:
    found = parse_profile(HEAD + text, "p").probe_of(method)
    assert found is not None
    return found


def judged(
    one: Probe,
    state: JsonValue | bytes,
    at: int = TOLD,
    now: int = NOW,
    params: JsonValue = None,
    answered_at: int | None = None,
) -> ProbeFinding | Unsettled:
    data = state if isinstance(state, bytes) else to_json(state)
    facts = CommandFacts("id", "a", "open", params, 0, 0)
    return judge_state(one, TOPIC, ToldState(data, at), ProbeLook(now, ACKNOWLEDGED, answered_at), facts)


def test_methods_find_their_probe() -> None:
    one = parse_profile(HEAD + GOAL + BOUND, "p")
    goal, bound = one.probe_of("open"), one.probe_of("fly_home")
    assert goal is not None
    assert bound is not None
    assert (goal.within, bound.within) == (timedelta(seconds=3), timedelta(seconds=5))
    assert one.probe_of("close") is None
    assert one.topic_for(goal.topic, "a") == TOPIC


class TestGoal:
    goal = of(GOAL, "open")

    def test_what_is_so_after_the_acknowledgement_was_done(self) -> None:
        found = judged(self.goal, {"cover": {"state": 1}, "volts": 12.5})
        size = len(to_json({"cover": {"state": 1}, "volts": 12.5}))
        assert found == ProbeFinding(
            S.SUCCEEDED, ProbeEvidence.GOAL, TOPIC, TOLD, {"cover.state": 1, "volts": 12.5}, size
        )

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            ({"cover": {"state": 0}, "volts": 12.5}, Unsettled.NOT_SO),
            ({"cover": {"state": 0}}, Unsettled.NOT_SO),
            ({"cover": {"state": 1}}, Unsettled.UNKNOWN),
            ({"cover": {"state": True}, "volts": 13}, Unsettled.UNKNOWN),
            ({"cover": {"state": "1"}, "volts": 13}, Unsettled.UNKNOWN),
            ({"cover": {"state": 1}, "volts": "13"}, Unsettled.UNKNOWN),
            ({}, Unsettled.UNKNOWN),
            (None, Unsettled.UNKNOWN),
            (b"", Unsettled.UNKNOWN),
            (b'{"cover":{"state":1},"volts":NaN}', Unsettled.UNKNOWN),
            (b'{"cover":{"state":1},"volts":1e400}', Unsettled.UNKNOWN),
            (b'{"cover":{"state":1},"volts":13', Unsettled.UNKNOWN),
        ],
    )
    def test_whatever_is_unknown_settles_nothing(self, state: JsonValue | bytes, why: Unsettled) -> None:
        assert judged(self.goal, state) is why

    @pytest.mark.parametrize("at", [0, ACKNOWLEDGED - SECOND, ACKNOWLEDGED, ACKNOWLEDGED + SECOND])
    def test_what_may_have_been_so_before_settles_nothing(self, at: int) -> None:
        assert judged(self.goal, {"cover": {"state": 1}, "volts": 13}, at) is Unsettled.UNTOLD

    def test_what_comes_from_the_future_settles_nothing(self) -> None:
        state: JsonValue = {"cover": {"state": 1}, "volts": 13}
        assert judged(self.goal, state, NOW + SECOND + 1) is Unsettled.UNKNOWN
        assert isinstance(judged(self.goal, state, NOW + SECOND), ProbeFinding)

    def test_silence_settles_nothing(self) -> None:
        facts = CommandFacts("id", "a", "open", None, 0, 0)
        assert judge_state(self.goal, TOPIC, None, ProbeLook(NOW, ACKNOWLEDGED), facts) is Unsettled.UNTOLD

    @given(
        state=st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
        ),
        at=st.integers(0, NOW * 2),
    )
    def test_only_what_holds_and_was_told_since_settles(self, state: JsonValue, at: int) -> None:
        """Against a second judge, written another way."""
        document: JsonValue = {"cover": {"state": state}, "volts": 12}
        wanted = type(state) is int and state == 1 and ACKNOWLEDGED + SECOND < at <= NOW + SECOND
        assert isinstance(judged(self.goal, document, at), ProbeFinding) == wanted


class TestQuestion:
    """A goal that was not reached, as a device says that has answered a question."""

    probe = of(asking(), "open")
    shut: ClassVar[JsonValue] = {"cover": {"state": 0}, "volts": 12}

    def test_what_is_otherwise_long_after_an_answer_was_not_done(self) -> None:
        answered_at = TOLD - 3 * SECOND - 1  # `after`, and what clocks may differ by
        found = judged(self.probe, self.shut, answered_at=answered_at)
        assert isinstance(found, ProbeFinding)
        assert (found.state, found.evidence, found.value) == (S.FAILED, ProbeEvidence.NOT_DONE, {"cover.state": 0})

    @pytest.mark.parametrize("answered_at", [None, TOLD - 3 * SECOND, TOLD, TOLD + SECOND])
    def test_a_device_that_may_be_about_to_do_it_has_not_failed(self, answered_at: int | None) -> None:
        assert judged(self.probe, self.shut, answered_at=answered_at) is Unsettled.NOT_SO

    @pytest.mark.parametrize("answered_at", [None, TOLD])
    def test_what_is_as_wanted_needs_no_answer(self, answered_at: int | None) -> None:
        found = judged(self.probe, {"cover": {"state": 1}, "volts": 12}, answered_at=answered_at)
        assert isinstance(found, ProbeFinding)
        assert (found.state, found.evidence) == (S.SUCCEEDED, ProbeEvidence.GOAL)

    def test_a_state_that_says_neither_settles_nothing(self) -> None:
        assert judged(self.probe, {"cover": {"state": 2}, "volts": 12}, answered_at=ACKNOWLEDGED) is Unsettled.NOT_SO

    def test_a_question_alone_needs_no_lane(self) -> None:
        one = of(probe('["open"]', DONE, "goal = true", 'ask = { method = "again", params = { a = 1 } }'), "open")
        assert one.ask is not None
        assert (one.ask.method, one.ask.params) == ("again", {"a": 1})


class TestBound:
    bound = of(BOUND, "fly_home")

    def test_a_state_that_names_the_command_ends_it_either_way(self) -> None:
        ends = {"ok": S.SUCCEEDED, "aborted": S.FAILED}
        for word, state in ends.items():
            found = judged(self.bound, {"flight": "f1", "end": word}, params={"flight": "f1"})
            assert isinstance(found, ProbeFinding)
            assert (found.state, found.evidence, found.value) == (state, ProbeEvidence.BOUND, {"end": word})

    @pytest.mark.parametrize(
        ("state", "params", "why"),
        [
            ({"flight": "f2", "end": "ok"}, {"flight": "f1"}, Unsettled.ANOTHER),
            ({"end": "ok"}, {"flight": "f1"}, Unsettled.ANOTHER),
            ({"flight": None, "end": "ok"}, {}, Unsettled.ANOTHER),
            ({"flight": "f1", "end": "ok"}, None, Unsettled.ANOTHER),
            ({"flight": "f1", "end": "flying"}, {"flight": "f1"}, Unsettled.NOT_SO),
            ({"flight": "f1"}, {"flight": "f1"}, Unsettled.UNKNOWN),
        ],
    )
    def test_another_command_is_not_this_one(self, state: JsonValue, params: JsonValue, why: Unsettled) -> None:
        assert judged(self.bound, state, params=params) is why

    def test_a_state_that_says_both_settles_nothing(self) -> None:
        both = of(BOUND.replace('["aborted"]', '["aborted", "ok"]'), "fly_home")
        assert judged(both, {"flight": "f1", "end": "ok"}, params={"flight": "f1"}) is Unsettled.UNKNOWN


def test_a_finding_is_one_word_of_ascii() -> None:
    one = ProbeFinding(S.SUCCEEDED, ProbeEvidence.GOAL, "d/dock 1/ü", 17, {"a b": "x\0 \ud800"})
    assert one.to_json().isascii()
    assert b" " not in one.to_json()
    assert b"\0" not in one.to_json()


@pytest.mark.parametrize(
    ("head", "tables", "place", "says"),
    [
        (HEAD, probe("[]", DONE, "goal = true"), "probe.0.methods", ""),
        (HEAD, probe('["open"]', "goal = true"), "probe.0.done", ""),
        (HEAD, probe('["open"]', "done = []", "goal = true"), "probe.0.done", ""),
        (HEAD, probe('["open"]', DONE), "probe.0", "needs either goal = true, or bound"),
        (HEAD, BOUND + "goal = true\n", "probe.0", "and not both"),
        (HEAD, GOAL + 'not_done = [{ path = "a", is_in = [1] }]\n', "probe.0.not_done", "goes with bound"),
        (HEAD, probe('["a"]', DONE, 'bound = [{ path = "f" }]'), "probe.0.bound.0", "names no command"),
        (HEAD, probe('["a"]', DONE, 'bound = [{ path = "f", equals = 3 }]'), "probe.0.bound.0", "names no command"),
        (HEAD, GOAL + 'within = "500ms"\n', "probe.0.within", "allowed: 1s to 10m"),
        (HEAD, GOAL + 'within = "11m"\n', "probe.0.within", "out of range"),
        (HEAD, GOAL + 'after = "1s"\n', "probe.0.after", "goes with goal and not_done"),
        (HEAD, asking(after="9s"), "probe.0.after", "within has to be longer"),
        (HEAD, asking("get"), "probe.0.ask.method", "'get' is not repeatable"),
        (HEAD, asking(more="by = 1"), "probe.0.ask.by", ""),
        (HEAD, asking(head=DANGEROUS), "probe.0.ask.method", "'again' is dangerous"),
        (HEAD, asking(more="params = { n = 1 }", head=TAKES_NOTHING), "probe.0.ask.params", ""),
        (HEAD, asking(lane=LANE.replace('"open"', '"open", "again"')), "probe.0.ask.method", "in a [[lane]] itself"),
        (HEAD, asking() + APPROVAL, "probe.0.ask.method", "in a [[approval]] itself"),
        (HEAD, asking() + probe('["again"]', DONE, "goal = true"), "probe.0.ask.method", "in a [[probe]] itself"),
        (HEAD, asking(lane=""), "probe.0.not_done", "needs open to be alone"),
        (HEAD, asking(lane=LANE + 'order = "fifo_ack"\n'), "probe.0.not_done", "needs open to be alone"),
        (HEAD, asking(lane=LANE + "width = 2\n"), "probe.0.not_done", "needs open to be alone"),
        (HEAD.replace("}/do", "}/do/{method}"), asking(), "probe.0.not_done", "cannot overtake"),
        (BY_ORDER, asking(), "probe.0.ask.method", "is not answered by its id or a value"),
        (CLOSED, asking(), "probe.0.ask.method", "'again' is no method of this profile"),
        (HEAD, probe('["a"]', 'done = [{ path = "a" }]', "goal = true"), "probe.0.done.0", "needs is_in"),
        (HEAD, probe('["a"]', 'done = [{ path = "a[0]", is_in = [1] }]', "goal = true"), "probe.0.done.0.path", "keys"),
        (HEAD, GOAL.replace("d/{device_id}/state", "d/{device_id}/other"), "probe.0.topic", "topic of no [[event]]"),
        (HEAD, GOAL.replace("{device_id}", "{params.x}"), "probe.0.topic", "which is not known of a device"),
        (HEAD, GOAL + probe('["o*"]', DONE, "goal = true"), "probe.1.methods.0", "'open' is in probe.0 already"),
        (CLOSED, GOAL, "probe.0.methods.0", "'open' fits no method of the profile: land"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_line_and_key(
    head: str, tables: str, place: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_profile(head + tables, "p.toml")
    text = str(refused.value)
    assert text.startswith("p.toml:")
    assert place in text
    assert says in text


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("cover_open", "cover_state", 1),
        ("cover_close", "cover_state", 0),
        ("supplement_light_open", "supplement_light_state", 1),
        ("supplement_light_close", "supplement_light_state", 0),
    ],
)
def test_docks_of_dji_tell_whether_it_was_done(method: str, path: str, value: int) -> None:
    one = load_profiles()["dji"].probe_of(method)
    assert one is not None
    assert isinstance(judged(one, {"data": {path: value}}), ProbeFinding)
    for other in {0, 1, 2, 3} - {value}:
        assert judged(one, {"data": {path: other}}) is Unsettled.NOT_SO
    assert judged(one, {"data": {"job_number": 12}}) is Unsettled.UNKNOWN
