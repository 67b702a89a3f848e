"""`homing analyze` and `homing generate-log` as people run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
PLANT = ROOT / "docs" / "examples" / "anomalies.toml"


def homing(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_was_planted_is_flagged_and_nothing_else(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    wrote = homing("generate-log", "--callbacks", "120k", "--days", "3", "--seed", "7", "--plant", PLANT, "--out", log)
    assert wrote.returncode == 0, wrote.stderr
    assert "directives" not in wrote.stdout  # what the JVM says of itself
    read = homing("analyze", log, "--out", out)
    assert read.returncode == 0, read.stderr
    truth = json.loads((log / "_truth.json").read_text())["anomalies"]
    found = pq.read_table(out / "tables" / "anomalies").to_pylist()
    assert {(one["kind"], one["subject"]) for one in found} == {(one["kind"], one["subject"]) for one in truth}
    assert read.stdout.count("flagged: ") == len(truth)
    assert read.stdout.splitlines()[-1] == str(out / "report.html")
    assert (out / "timeouts.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("analyze", "/does/not/exist", "--out", "out"), "/does/not/exist: there is no such folder"),
        (("analyze", ".", "--out", "out", "--from", "last week"), "--from 'last week': not a day"),
        (("analyze", ".", "--out", "out", "--follow", "--lateness", "soon"), "--lateness"),
        (("generate-log", "--out", "out", "--callbacks", "many"), "--callbacks: 'many' is not a count"),
        (("generate-log", "--out", ".", "--callbacks", "1"), "there is something in it"),
    ],
)
def test_wrong_options_are_said_in_a_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = homing(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
