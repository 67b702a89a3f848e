"""The measurements of homing_rig.figures: their kit, their options, and those that take no time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from homing_rig.figures.__main__ import MEASUREMENTS, figures
from homing_rig.figures.kit import Findings, as_json, as_markdown, p99, paced
from homing_rig.turns import in_turns


def found() -> Findings:
    findings = Findings("A measurement.", lambda _line: None)
    findings.note("a note")
    findings.spread("ratio", [1.5, 1.0, 3.0], " ×", most=2)
    findings.figure("lost", 1, most=0)
    return findings


def test_each_figure_is_told_at_once_with_its_aim() -> None:
    lines: list[str] = []
    findings = Findings("A measurement.", lines.append)
    findings.figure("seconds", 2.5, " s", least=1, most=3)
    assert lines == ["seconds: 2.5 s; aim: at least 1 s and at most 3 s: reached"]
    assert findings.reached
    findings.spread("ratio", [1.5, 1.0, 3.0], " ×", most=1.2)
    assert lines[1:] == ["ratio: 1.5 × (1 to 3, of 3); aim: at most 1.2 ×: MISSED"]
    assert not findings.reached


def test_markdown_has_notes_and_a_table() -> None:
    assert as_markdown(found()).splitlines() == [
        "## A measurement.",
        "",
        "- a note",
        "",
        "| figure | value | from and to | aim |",
        "|---|---|---|---|",
        "| ratio | 1.5 × | 1 to 3, of 3 | at most 2 ×: reached |",
        "| lost | 1 |  | at most 0: MISSED |",
    ]


def test_json_has_all_of_it() -> None:
    document = json.loads(as_json(found()))
    assert document["notes"] == ["a note"]
    assert [(one["name"], one["value"], one["reached"]) for one in document["figures"]] == [
        ("ratio", 1.5, True),
        ("lost", 1, False),
    ]
    assert document["machine"]["cpus"] >= 1


def test_no_values_have_no_spread() -> None:
    findings = Findings("A measurement.", lambda _line: None)
    findings.spread("nothing", [])
    assert [str(entry) for entry in findings.entries] == ["nothing: 0 (0 to 0, of 0)"]
    assert p99([]) == 0


def test_rounds_begin_with_another_side_each_time() -> None:
    assert list(in_turns("abc", 3)) == [*"abc", *"bca", *"cab"]


async def test_numbers_that_are_late_come_at_once() -> None:
    assert [number async for number in paced(1e9, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_measurement_tells_its_options(name: str) -> None:
    told = CliRunner().invoke(figures, [name, "--help"])
    assert told.exit_code == 0, told.output
    assert "--format" in told.output


def test_a_measurement_runs_as_it_is_asked_for() -> None:
    command = [sys.executable, "-m", "homing_rig.figures", "client-failing", "--calls", "5", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["figures"][0]["value"] >= 1
    assert "5 calls became" in done.stderr, "it tells how far it is"


def test_an_option_that_is_out_of_range_is_refused() -> None:
    told = CliRunner().invoke(figures, ["client-failing", "--calls", "0"])
    assert told.exit_code == 2
    assert "--calls" in told.output
