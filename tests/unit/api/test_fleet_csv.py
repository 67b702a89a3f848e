"""Tables of fleet runs for spreadsheets, which take no text of a device for a formula."""

from __future__ import annotations

import csv
from io import StringIO

import pytest

from app.api.v1.fleet_csv import targets_csv
from app.core.fleets.marks import TargetMark
from app.fleets.administration import TargetRow


def test_no_cell_of_a_table_is_a_formula() -> None:
    said = ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1", "\n=1", "a=1", 'say "a", b']
    codes = [None, -3, 7.5, True, "=x", ["a"], {"a": 1}, "", 0]
    rows = [
        TargetRow(index, "dock-1", "dji", 0, TargetMark.FAILED, None, [1, code, message])
        for index, (code, message) in enumerate(zip(codes, said, strict=True))
    ]
    _, *table = csv.reader(StringIO(targets_csv(rows).decode(), newline=""))
    escaped = ["'=1+1", "'+1", "'-1", "'@sum", "'\t'=1", "'\r'=1", "'\n'=1"]
    assert [row[-2] for row in table] == [*escaped, *said[7:]]
    assert [row[-3] for row in table] == ["", "-3", "7.5", "true", "'=x", '["a"]', '{"a":1}', "", "0"]


@pytest.mark.parametrize("sign", "=+-@")
def test_wide_forms_of_signs_begin_no_formula_either(sign: str) -> None:
    wide = chr(ord(sign) + 0xFEE0)
    row = TargetRow(0, "dock-1", "dji", 0, TargetMark.FAILED, None, [1, f"{wide}x", f"{wide}1+1;{wide}2 {wide}"])
    _, (*_, code, message, _) = csv.reader(StringIO(targets_csv([row]).decode(), newline=""))
    assert (code, message) == (f"'{wide}x", f"'{wide}1+1;'{wide}2 {wide}")


def test_an_answer_is_json_and_no_formula_either() -> None:
    answers = ['"=1+1"', '"7"', "20.50", "-3", "true", '{"a":1,\n=2}', '{"a":"b;@x"}']
    rows = [
        TargetRow(index, "dock-1", "dji", 0, TargetMark.SUCCEEDED, None, [1, None, "", answer])
        for index, answer in enumerate(answers)
    ]
    _, *table = csv.reader(StringIO(targets_csv(rows).decode(), newline=""))
    assert [row[-1] for row in table] == [*answers[:5], '{"a":1,\n\'=2}', '{"a":"b;\'@x"}']


def test_no_formula_begins_where_a_spreadsheet_divides_a_text_by_other_signs() -> None:
    """A semicolon ends a cell where numbers have commas, as in Germany, and quotes inside a line mean nothing."""
    said = "off;=1+1;-2\n@x\r\n+3\t=4; a=b;c - d"
    row = TargetRow(0, "dock-1", "dji", 0, TargetMark.FAILED, None, [1, ["x;=1"], said])
    _, (*_, code, message, _) = csv.reader(StringIO(targets_csv([row]).decode(), newline=""))
    assert message == "off;'=1+1;'-2\n'@x\r\n'+3\t'=4; a=b;c - d"
    assert code == """["x;'=1"]"""
