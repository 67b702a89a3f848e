"""The history file: what is written is read, and a line that is not as it should be is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from homing_rig.chaos.history import (
    AnswerAcked,
    Answered,
    End,
    Event,
    Executed,
    Fail,
    Fault,
    FaultPhase,
    FinalRead,
    Header,
    HistoryError,
    HistoryWriter,
    Invoke,
    MarkRead,
    Metric,
    Mode,
    Ok,
    OperationKind,
    Unknown,
    decode,
    encode,
    read_history,
)

EVENTS: list[Event] = [
    Header(
        scenario="R3",
        seed=7,
        started_at="2026-01-01T00:00:00Z",
        retention=60.0,
        recovery=5.0,
        limits={"hung": 3.0},
        tolerated=("answer_lost",),
        expects=("I1",),
        settings={"nodes": 3, "schedule": [[0.5, "kill", "a"]]},
    ),
    Invoke(
        at=0.25,
        op=1,
        caller="c1",
        node="a",
        kind=OperationKind.COMMAND,
        timeout=10.0,
        device="d1",
        nonce="n1",
        key="k1",
        mode=Mode.ASYNC,
    ),
    Ok(at=0.5, op=1, latency=0.25, status=202, command_id="x1", state="pending", replayed=True),
    Fail(at=0.5, op=2, latency=0.25, status=429, reason="limit-reached"),
    Unknown(at=0.5, op=3, latency=0.25, reason="reset"),
    Executed(at=0.5, device="d1", command_id="x1", nonce="n1", dup=False),
    Answered(at=0.5, device="d1", command_id="x1", sequence=1, state="running"),
    AnswerAcked(at=0.5, device="d1", command_id="x1", sequence=1),
    Fault(at=0.5, kind="kill", target="a", phase=FaultPhase.BEGIN),
    FinalRead(at=9.0, node="a", command_id="x1", state="timed_out", late=True, late_nonce="n1", overrun=-0.001),
    FinalRead(at=9.0, node="a", command_id="x2", state="gone"),
    FinalRead(at=9.0, node="a", command_id="x3", state="cancelled", claims=0),
    MarkRead(at=9.0, run="r1", target=7, mark="timed_out"),
    Metric(at=9.0, source="a", name="drop.duplicate", value=3.0),
    End(at=10.0),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer:
        for event in EVENTS:
            writer.write(event)
    assert [event for _, event in read_history(path)] == EVENTS
    assert [line for line, _ in read_history(path)] == list(range(1, len(EVENTS) + 1))


def test_each_event_is_one_line_of_json_without_its_defaults() -> None:
    assert encode(EVENTS[4]) == b'{"event":"unknown","at":0.5,"op":3,"latency":0.25,"reason":"reset"}\n'
    assert encode(EVENTS[-1]) == b'{"event":"end","at":10.0}\n'
    assert json.loads(encode(Header(scenario="R1", seed=0, started_at="")))["version"] == 1


def test_the_writer_gives_its_buffer_to_the_file_when_it_is_full_and_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, buffer=100) as writer:
        writer.write(EVENTS[-1])
        assert path.read_bytes() == b""
        for _ in range(4):
            writer.write(EVENTS[-1])
        assert len(list(read_history(path))) == 4
        writer.flush()
        assert len(list(read_history(path))) == 5
    writer.close()


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("of yesterday")
    with pytest.raises(HistoryError, match=r"history\.jsonl: a new file is needed: File exists"):
        HistoryWriter(path)
    assert path.read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "line 3: is no JSON"),
        (b'{"event":"end","at":1', "line 3: is no JSON .*; it is cut off"),
        (b"[]\n", "line 3: is no JSON object"),
        (b"{}\n", "line 3: event None is unknown; allowed: header, invoke, ok"),
        (b'{"event":["end"]}\n', "line 3: event .* is unknown"),
        (b'{"event":"end"}\n', "line 3: end lacks at"),
        (b'{"event":"end","at":1,"by":2}\n', "line 3: end has no 'by'; allowed: at"),
        (b'{"event":"end","at":"1"}\n', "line 3: at of end is '1'; allowed: a number"),
        (b'{"event":"end","at":true}\n', "line 3: at of end is True; allowed: a number"),
        (b'{"event":"ok","at":1,"op":1.0,"latency":1}\n', "line 3: op of ok is 1.0; allowed: a whole number"),
        (b'{"event":"ok","at":1,"op":1,"latency":1,"status":null}\n', "status of ok is None; allowed: a whole number"),
        (b'{"event":"ok","at":1,"op":1,"latency":1,"late":1}\n', "late of ok is 1; allowed: true or false"),
        (
            b'{"event":"ok","at":1,"op":1,"latency":1,"state":"done"}\n',
            "'done'; allowed: held, pending, .*, unsent, gone",
        ),
        (
            b'{"event":"ok","at":1,"op":1,"latency":1,"state":["pending"]}\n',
            "state of ok is .*; allowed: held, pending",
        ),
        (
            b'{"event":"mark_read","at":1,"run":"r1","target":0,"mark":"done"}\n',
            "mark of mark_read is 'done'; allowed: waiting, handed, succeeded",
        ),
        (
            b'{"event":"fault","at":1,"kind":"kill","target":"a","phase":"over"}\n',
            "phase of fault is 'over'; allowed: begin, end, moment",
        ),
        (
            b'{"event":"header","scenario":"R1","seed":1,"started_at":"","version":2}\n',
            "version of header is 2; allowed",
        ),
        (
            b'{"event":"header","scenario":"R1","seed":1,"started_at":"","limits":{"a":"b"}}\n',
            "limits of header is .*; allowed: an object of numbers",
        ),
    ],
)
def test_a_line_that_is_not_as_it_should_be_is_named(line: bytes, sentence: str) -> None:
    with pytest.raises(HistoryError, match=sentence):
        decode(line, 3)
