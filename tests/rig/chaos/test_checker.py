"""The checker judges histories written by hand: the good ones hold, each bad one has its one violation."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from homing_rig.chaos.checker import INVARIANTS, KINDS, Report, Verdict, check, main
from homing_rig.chaos.history import (
    AnswerAcked,
    Answered,
    End,
    Event,
    Executed,
    Fault,
    FaultPhase,
    FinalRead,
    Header,
    HistoryError,
    HistoryWriter,
    Invoke,
    Metric,
    Mode,
    Ok,
    OperationKind,
    read_history,
)

HISTORIES = Path(__file__).parent / "histories"
GOOD = sorted(path.stem for path in (HISTORIES / "good").glob("*.jsonl"))
NOTHING_TO_JUDGE = "an_unknown_command_that_was_never_on_record_is_nobodys_loss"

BAD = {
    # I1
    "an_accepted_command_is_not_on_record": ("command_lost", (3, 4)),
    "a_record_is_gone_before_its_retention_has_passed": ("command_lost", (6, 8)),
    "an_accepted_command_never_ends": ("never_final", (3, 5)),
    # I2
    "a_finished_command_runs_again": ("left_outcome", (6, 8)),
    "two_nodes_disagree_about_the_outcome": ("outcome_changed", (7, 8)),
    "an_outcome_loses_its_result": ("outcome_changed", (7, 8)),
    "two_callers_with_one_key_are_told_different_outcomes": ("outcome_changed", (7, 8)),
    # I3
    "a_caller_gets_the_result_of_another_command": ("wrong_answer", (3, 6)),
    "the_wrong_result_is_stored_and_told": ("wrong_answer", (3, 6)),
    "the_wrong_result_is_read_before_its_nonce_is_known": ("wrong_answer", (4, 5)),
    "the_late_annex_is_of_another_command": ("wrong_answer", (3, 7)),
    "a_refusal_becomes_a_success": ("wrong_answer", (4, 7)),
    "a_caller_is_given_the_command_of_another": ("wrong_command", (3, 8)),
    "a_command_reaches_another_device": ("wrong_device", (2, 3)),
    # I4
    "an_acknowledged_answer_is_lost": ("answer_lost", (5, 8)),
    "an_acknowledged_answer_after_the_deadline_is_not_annexed": ("answer_lost", (6, 7)),
    "an_acknowledged_answer_of_a_caller_who_was_cut_off_is_lost": ("answer_lost", (6, 7)),
    # I5
    "the_caller_is_told_timed_out_and_the_answer_is_stored": ("answer_differs", (6, 7)),
    "the_caller_is_told_unsent_and_the_command_succeeds": ("answer_differs", (3, 7)),
    "a_sync_caller_gets_200_without_an_outcome": ("answer_differs", (4,)),
    # I7
    "a_device_receives_a_command_twice_without_dup": ("executed_twice", (3, 4)),
    "a_device_receives_a_command_twice_and_nobody_knows_of_dup": ("executed_twice", (3, 4)),
    "a_device_executes_a_key_under_two_ids": ("executed_twice", (3, 6)),
    # I8
    "redis_keeps_a_key": ("keys_left", (2, 10)),
    # F5
    "a_command_reaches_its_device_after_its_deadline": ("executed_late", (2, 4)),
    "an_unsent_command_is_executed": ("executed_unsent", (4, 5)),
    "a_command_is_executed_though_its_caller_was_refused": ("executed_unsent", (2, 4)),
    "a_command_that_nobody_claimed_is_executed": ("executed_unclaimed", (4, 5)),
    # I9
    "a_lane_is_overtaken": ("lane_order", (6, 9)),
    "two_commands_of_a_lane_are_with_their_device": ("lane_together", (6, 7)),
    # I10
    "a_target_that_has_ended_is_handed_out_again": ("mark_back", (3, 4)),
    # figures above their limits
    "a_caller_hangs": ("limit", (2,)),
    "a_caller_is_answered_too_late": ("limit", (2, 4)),
    "an_outcome_comes_too_late": ("limit", (5,)),
    "nobody_reads_an_accepted_command": ("limit", (3,)),
    "nobody_reads_what_a_caller_was_told": ("limit", (3,)),
    "nobody_reads_after_the_answer": ("limit", (3,)),
    "the_broker_dropped_more_than_the_scenario_allows": ("limit", (8,)),
}


def judged(folder: str, name: str) -> Report:
    return check(read_history(HISTORIES / folder / f"{name}.jsonl"))


def numbered(*events: Event) -> Iterator[tuple[int, Event]]:
    return ((line, event) for line, event in enumerate(events, 1))


HEADER = Header(scenario="by hand", seed=1, started_at="2026-01-01T00:00:00Z")


def story(number: int, *, at: float = 1.0, seconds: float = 0.1, node: str = "a") -> list[Event]:
    """A command that its device answers."""
    me, nonce = {"device": "d1", "command_id": f"x{number}"}, f"n{number}"
    return [
        Invoke(
            at=at,
            op=number,
            caller="c1",
            node=node,
            kind=OperationKind.COMMAND,
            timeout=10.0,
            device="d1",
            nonce=nonce,
            key=f"k{number}",
        ),
        Executed(at=at, nonce=nonce, dup=False, **me),
        Answered(at=at, sequence=number, **me),
        AnswerAcked(at=at, sequence=number, **me),
        Ok(
            at=at + seconds,
            op=number,
            latency=seconds,
            status=200,
            command_id=f"x{number}",
            state="succeeded",
            result_nonce=nonce,
        ),
        FinalRead(at=50.0, node=node, command_id=f"x{number}", state="succeeded", result_nonce=nonce),
    ]


@pytest.mark.parametrize(("at", "found"), [(40.0, []), (60.0, ["executed_late"])])
def test_a_command_that_is_held_may_reach_its_device_until_its_hold_and_its_timeout_are_over(
    at: float, found: list[str]
) -> None:
    invoked, executed, *_ = story(1)
    assert isinstance(invoked, Invoke)
    assert isinstance(executed, Executed)
    accepted = Ok(at=1.1, op=1, latency=0.1, status=202, command_id="x1", state="held")
    final = FinalRead(at=70.0, node="a", command_id="x1", state="timed_out")
    report = check(numbered(HEADER, replace(invoked, hold=30.0), accepted, replace(executed, at=at), final))
    assert [*report.counts] == found


@pytest.mark.parametrize(("back", "late"), [(39.0, 0), (37.5, 1), (30.5, 1)])
def test_an_outcome_that_is_due_while_redis_is_away_may_come_when_it_is_back(back: float, late: int) -> None:
    """The command is due at 31.1 s and has its outcome at 40 s; two seconds are allowed."""
    invoked, executed, *_ = story(1)
    assert isinstance(invoked, Invoke)
    history: list[Event] = [
        replace(invoked, timeout=30.0),
        Ok(at=1.1, op=1, latency=0.1, status=202, command_id="x1", state="pending"),
        executed,
        Fault(at=29.0, kind="kill", target="redis", phase=FaultPhase.BEGIN),
        Fault(at=back, kind="kill", target="redis", phase=FaultPhase.END),
        FinalRead(at=70.0, node="a", command_id="x1", state="timed_out", overrun=8.9, ended=40.0),
    ]
    assert check(numbered(HEADER, *history)).figures["late_finals"] == late


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_holds(name: str) -> None:
    report = judged("good", name)
    assert report.violations == ()
    expected = Verdict.NO_EVIDENCE if name == NOTHING_TO_JUDGE else Verdict.HOLDS
    assert (report.verdict, report.missing) == (expected, ())
    assert report.exit_code == (2 if name == NOTHING_TO_JUDGE else 0)
    assert Verdict.VIOLATED not in report.invariants.values()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_has_exactly_its_violation(name: str) -> None:
    report = judged("bad", name)
    assert [(violation.kind, violation.lines) for violation in report.violations] == [BAD[name]]
    assert report.verdict is Verdict.VIOLATED
    assert report.exit_code == 1
    (violation,) = report.violations
    broken = {invariant for invariant, verdict in report.invariants.items() if verdict is Verdict.VIOLATED}
    assert broken == {violation.invariant} - {"limit"}


def test_every_bad_history_and_every_kind_of_violation_has_a_test() -> None:
    assert sorted(path.stem for path in (HISTORIES / "bad").glob("*.jsonl")) == sorted(BAD)
    assert {kind for kind, _ in BAD.values()} == set(KINDS)


def test_each_invariant_says_for_itself_whether_it_had_evidence() -> None:
    report = judged("good", "an_answered_command_reads_the_same_on_both_nodes")
    assert report.invariants == {
        name: Verdict.NO_EVIDENCE if name in ("I6", "I8", "I9", "I10") else Verdict.HOLDS for name in INVARIANTS
    }
    assert judged("good", "redis_is_as_empty_as_before").invariants["I8"] is Verdict.HOLDS


def test_nothing_is_said_to_hold_without_evidence() -> None:
    report = check(numbered(HEADER, End(at=1.0)))
    assert set(report.invariants.values()) == {Verdict.NO_EVIDENCE}
    assert (report.verdict, report.exit_code) == (Verdict.NO_EVIDENCE, 2)


def test_expected_evidence_that_is_missing_gives_no_verdict() -> None:
    report = check(numbered(replace(HEADER, expects=("I1", "I8")), *story(1), End(at=60.0)))
    assert (report.verdict, report.exit_code) == (Verdict.INCOMPLETE, 2)
    (sentence,) = report.missing
    assert "I8" in sentence


def test_a_history_without_an_end_gives_no_verdict_unless_something_is_violated() -> None:
    report = check(numbered(HEADER, *story(1)[:-1]))
    assert (report.verdict, report.exit_code) == (Verdict.INCOMPLETE, 2)
    invoke, executed = story(1)[:2]
    assert check(numbered(HEADER, invoke, executed, executed)).exit_code == 1


def test_a_limit_on_a_figure_that_was_never_taken_gives_no_verdict() -> None:
    report = check(numbered(replace(HEADER, limits={"broker_dropped": 0}), *story(1), End(at=60.0)))
    assert (report.verdict, report.missing) == (Verdict.INCOMPLETE, ("the figure broker_dropped, which has a limit",))


def test_tolerated_kinds_are_counted_and_do_not_decide() -> None:
    events = [event for _, event in read_history(HISTORIES / "bad" / "an_acknowledged_answer_is_lost.jsonl")]
    events[0] = replace(HEADER, tolerated=("answer_lost",))
    report = check(numbered(*events))
    assert (report.verdict, report.exit_code) == (Verdict.TOLERATED, 0)
    assert report.invariants["I4"] is Verdict.TOLERATED
    assert report.counts == {"answer_lost": 1}
    assert report.figures["lost"] == report.figures["lost_answers"] == 1


def test_a_header_may_relax_a_limit_of_every_run() -> None:
    events = [event for _, event in read_history(HISTORIES / "bad" / "a_caller_hangs.jsonl")]
    events[0] = replace(HEADER, limits={"hung": 1})
    report = check(numbered(*events))
    assert (report.verdict, report.figures["hung"]) == (Verdict.HOLDS, 1)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (replace(HEADER, tolerated=("losses",)), "line 1: tolerated: 'losses' is no kind of violation; allowed: comm"),
        (replace(HEADER, expects=("I99",)), "line 1: expects: 'I99' is no invariant; allowed: I1, I2"),
    ],
)
def test_a_header_that_names_what_does_not_exist_is_refused(header: Header, sentence: str) -> None:
    with pytest.raises(HistoryError, match=sentence):
        check(numbered(header))


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "the history is empty"),
        ([End(at=1.0)], "line 1: a history begins with its header"),
        ([HEADER, HEADER], "line 2: a header stands in the first line only"),
        ([HEADER, *story(1)[:1], *story(1)[:1]], "line 3: operation 1 was invoked before"),
        ([HEADER, story(1)[4]], "line 2: operation 1 was not invoked, or has ended before"),
        ([HEADER, story(1)[2], story(1)[2]], "line 3: answer 1 was published before"),
        ([HEADER, story(1)[3]], "line 2: answer 1 was not published"),
        ([HEADER, End(at=1.0), End(at=1.0)], "line 3: nothing may follow the end"),
    ],
)
def test_what_cannot_follow_is_no_history(events: list[Event], sentence: str) -> None:
    with pytest.raises(HistoryError, match=sentence):
        check(numbered(*events))


def test_latencies_are_told_apart_by_calm_and_faults() -> None:
    def fault(at: float, phase: FaultPhase, target: str = "a") -> Fault:
        return Fault(at=at, kind="kill", target=target, phase=phase)

    header = replace(HEADER, recovery=1.0)
    calm = [story(number, at=number / 10, seconds=number / 1000) for number in range(1, 101)]
    report = check(
        numbered(
            header,
            *chain.from_iterable(calm),  # until 10.1
            *story(201, at=11.9, seconds=0.3)[:4],
            fault(12.0, FaultPhase.BEGIN),
            *story(201, at=11.9, seconds=0.3)[4:],
            *story(202, at=13.2, seconds=0.6),
            fault(14.0, FaultPhase.END),
            *story(203, at=14.9, seconds=0.1),
            *story(204, at=15.1, seconds=0.1),
            fault(20.0, FaultPhase.MOMENT),
            *story(205, at=20.5, seconds=0.2),
            *story(206, at=21.5, seconds=0.1),
            End(at=60.0),
        )
    )
    figures = report.figures
    assert report.verdict is Verdict.HOLDS
    assert (figures["sync_calm_count"], figures["sync_faults_count"], figures["faults"]) == (102, 4, 2)
    assert figures["sync_faults_p50_ms"] == pytest.approx(200)
    assert figures["sync_faults_p99_ms"] == figures["sync_faults_max_ms"] == pytest.approx(600)
    assert figures["sync_calm_p50_ms"] == pytest.approx(51)
    assert figures["sync_calm_p99_ms"] == pytest.approx(100)
    assert figures["sync_p50_ratio"] == pytest.approx(200 / 51)
    assert "async_calm_count" not in figures


def test_figures_count_what_their_names_say() -> None:
    report = judged("good", "a_retry_after_an_unknown_outcome_joins_the_command")
    figures = report.figures
    counted = ("calls", "commands", "accepted", "ok", "fail", "unknown", "replayed", "keys", "keys_unanswered")
    assert [figures[name] for name in counted] == [3, 1, 1, 1, 1, 1, 1, 1, 0]
    assert [figures[name] for name in ("lost", "wrong", "duplicates", "hung", "unread")] == [0] * 5
    assert figures["state.succeeded"] == 1
    assert judged("good", "a_late_answer_is_annexed").figures["answers_late"] == 1
    assert judged("good", "a_repeated_answer_is_a_duplicate").figures["answers_repeated"] == 1
    assert judged("good", "a_delivery_with_the_dup_flag_is_excepted").figures["dup_executions"] == 1
    assert judged("good", "progress_comes_before_the_outcome").figures["answers_acked"] == 1
    unknown = judged("good", "an_unknown_command_that_ran_without_its_caller_is_judged_too").figures
    assert (unknown["unknown"], unknown["accepted"], unknown["keys_unanswered"], unknown["answers_acked"]) == (
        1,
        0,
        1,
        1,
    )


def test_counters_of_all_nodes_are_summed() -> None:
    metrics = [Metric(at=2.0, source=node, name="drop.duplicate", value=3.0) for node in "abc"]
    report = check(numbered(HEADER, *story(1), *metrics, End(at=60.0)))
    assert report.figures["counter.drop.duplicate"] == 9


def test_many_violations_are_counted_and_the_first_ones_shown() -> None:
    lost = [story(number)[:5] for number in range(1, 301)]
    gone = [FinalRead(at=50.0, node="a", command_id=f"x{number}", state="gone") for number in range(1, 301)]
    report = check(numbered(HEADER, *chain.from_iterable(lost), *gone, End(at=60.0)))
    assert report.counts == {"command_lost": 300}
    assert len(report.violations) == 100
    assert report.render().count("is not on record") == 10


def test_memory_grows_with_commands_and_not_with_events() -> None:
    def reads(count: int) -> Iterator[Event]:
        for number in range(count):
            op = 10 + number
            yield Invoke(
                at=2.0,
                op=op,
                caller="c",
                node="a",
                kind=OperationKind.READ,
                timeout=5.0,
                command_id="x1",
                mode=Mode.SYNC,
            )
            yield Ok(at=2.0, op=op, latency=0.0, status=200, command_id="x1", state="succeeded", result_nonce="n1")

    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            report = check(enumerate(chain([HEADER], story(1), reads(count), [End(at=60.0)]), 1))
            assert report.verdict is Verdict.HOLDS
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(20_000) < 500_000, "what Python itself keeps of freed objects is about 140,000"


def test_the_program_prints_the_verdict_and_exits_with_it(tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "homing_rig.chaos.checker", *arguments], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = run(str(HISTORIES / "good" / "a_late_answer_is_annexed.jsonl"))
    assert (code, err) == (0, "")
    assert out.startswith("scenario by hand, seed 1: HOLDS\n")
    code, out, err = run(str(HISTORIES / "bad" / "redis_keeps_a_key.jsonl"))
    assert (code, err) == (1, "")
    assert "I8 keys_left: Redis had 3 keys" in out
    assert "(line 2, 10)" in out


def test_the_program_says_what_is_wrong_with_its_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.jsonl"
    with HistoryWriter(cut) as writer:
        writer.write(HEADER)
    cut.write_bytes(cut.read_bytes() + b'{"event":"en')
    assert main([str(cut)]) == 2
    assert "line 2: is no JSON" in (said := capsys.readouterr().err)
    assert "cut off" in said
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: cannot be read: No such file" in capsys.readouterr().err
    assert main([]) == main(["--help"]) == 2
