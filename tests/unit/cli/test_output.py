"""Output that goes nowhere, input that is no JSON, and answers of strangers: a sentence and the exit code for it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.json_input import parse_json
from tests.unit.cli.conftest import FakeNode, Homing, Read

ROOT = Path(__file__).parents[3]


def _here() -> dict[str, str]:
    """The environment of this moment, for a process that finds this code."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}


@pytest.mark.parametrize("verb", ["version", "profile schema", "", "--help"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_output_on_a_full_disk_is_a_failure_that_says_so(verb: str) -> None:
    with Path("/dev/full").open("wb") as full:
        line = [sys.executable, "-m", "app.cli", *verb.split()]
        ended = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=_here(), check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        "homing: standard output cannot be written: No space left on device\n",
    )


def test_a_terminal_of_unknown_width_is_told_the_help() -> None:
    line = [sys.executable, "-m", "app.cli", "--help"]
    said = subprocess.run(line, capture_output=True, text=True, env={**_here(), "COLUMNS": "0"}, check=True).stdout
    assert "Usage: homing" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_an_export_of_the_audit_on_a_full_disk_is_no_success(homing: Homing, read: Read) -> None:
    assert homing("access", "init")[0] == 0
    assert read().version > 0
    with Path("/dev/full").open("wb") as full:
        line = [sys.executable, "-m", "app.cli", "audit", "export"]
        ended = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=_here(), check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        "homing: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("typed", "closed", "code", "said"),
    [
        ("events publish t -", "<&-", 2, "homing: standard input is closed, and something is to be read from it\n"),
        ("login http://127.0.0.1:9 -u ann --stdin", "<&-", 2, "homing: standard input is closed"),
        ("login http://127.0.0.1:9 -u ann", "<&-", 2, "homing: there is no terminal to ask at"),
        ("version", ">&-", 1, "homing: standard output is closed\n"),
        ("context use nowhere", "2>&-", 2, ""),
    ],
)
def test_a_stream_that_is_closed_is_a_sentence(typed: str, closed: str, code: int, said: str) -> None:
    line = ["sh", "-c", f'exec "$0" -m app.cli {typed} {closed}', sys.executable]
    ended = subprocess.run(line, capture_output=True, text=True, env=_here(), check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.startswith(said), "Traceback" in ended.stderr) == (
        code,
        "",
        True,
        False,
    )


def test_what_a_place_has_no_letters_for_is_written_otherwise(fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"open": False, "principal": "J\u00f6rg", "roles": [], "limits": []})]
    line = [sys.executable, "-m", "app.cli", "whoami", "--url", fake_node.url]
    here = _here() | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(line, capture_output=True, text=True, env=here, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"You are J\\xf6rg at {fake_node.url}\n", "")


@pytest.mark.parametrize("typed", [("login", "--stdin"), ("api", "PUT", "/v1/x", "-"), ("fleet", "run", "-")])
def test_what_is_no_text_on_standard_input_is_wrong_input(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    fake_node.answers = [(401, {"detail": "who asks?"})]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    where = (fake_node.url,) if typed[0] == "login" else ("--url", fake_node.url)
    code, out, err = homing(*typed, *where)
    assert (code, out, err) == (2, "", "homing: standard input is not UTF-8\n")


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "1e999", "[" * 100_000, '{"a": ', '{"a": 1, "a": 2}'])
@pytest.mark.parametrize(
    "verb", [("events", "publish", "t"), ("api", "PUT", "/v1/x"), ("send", "dock-1", "fly", "--params")]
)
def test_what_is_no_json_is_wrong_input(homing: Homing, verb: tuple[str, ...], text: str) -> None:
    code, said, told = homing(*verb, text, "--url", "http://127.0.0.1:9")
    assert (code, said) == (2, "")
    assert "not JSON" in told


@pytest.mark.parametrize("param", ['mission={"height": 30, "height": 300}', '{"height": 30, "height": 300}'])
def test_a_key_that_is_there_twice_is_neither_guessed_nor_sent_as_text(homing: Homing, param: str) -> None:
    code, said, told = homing("send", "dock-1", "fly", param, "--url", "http://127.0.0.1:9")
    assert (code, said) == (2, "")
    assert "the key 'height' is there twice" in told


def test_numbers_that_fit_stay_as_they_are() -> None:
    assert parse_json('{"a": [1.5, 18446744073709551615, 1e3, null]}') == {"a": [1.5, 2**64 - 1, 1000.0, None]}


@pytest.mark.parametrize(("status", "exit_code"), [(520, 7), (499, 2), (200, 6), (302, 6), (503, 5)])
def test_answers_of_strangers_have_exit_codes(homing: Homing, fake_node: FakeNode, status: int, exit_code: int) -> None:
    fake_node.answers = [(status, b'{"type": "about:blank"}' if status >= 400 else b"[]")]
    code, _, told = homing("nodes", "--url", fake_node.url)
    assert code == exit_code
    assert told.startswith("homing: ")
