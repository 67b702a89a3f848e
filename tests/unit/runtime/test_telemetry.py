"""The lines of the log, at a terminal and for programs."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import structlog

from app.runtime.telemetry import configure_logging, speak_as


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_incarnation_is_for_programs(form: Literal["console", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    async def speak() -> None:
        speak_as(lambda: {"node_id": "n1", "incarnation": "01M8"})
        structlog.get_logger().info("node_ready")

    configure_logging("info", form)
    asyncio.run(speak())
    line = capsys.readouterr().err
    assert ("01M8" in line) is (form == "json")
    if form == "json":
        assert json.loads(line)["incarnation"] == "01M8"
    else:
        assert "node_id=n1" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_a_log_that_cannot_be_written_ends_nothing(redirected: str) -> None:
    program = (
        "import structlog; from app.runtime.telemetry import configure_logging; configure_logging('info', 'json'); "
        "structlog.get_logger().info('node_ready'); structlog.get_logger().info('node_ready'); print('it goes on')"
    )
    line = ["sh", "-c", f'exec "$0" -c "$1" {redirected}', sys.executable, program]
    assert subprocess.run(line, capture_output=True, text=True, check=False).stdout == "it goes on\n"


def test_what_was_lost_is_told_when_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "rb", buffering=0) as reader, os.fdopen(writing, "w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        configure_logging("info", "json")
        for number in range(2_000):
            structlog.get_logger().info("node_ready", text="x" * 100, number=number)
        told = reader.read(1 << 20)
        structlog.get_logger().info("node_stopping")
        told += reader.read(1 << 20)
    first, *_, stopping, lost = told.splitlines()  # one in between may be a part
    assert json.loads(first)["event"] == "node_ready"
    assert json.loads(stopping)["event"] == "node_stopping"
    assert json.loads(lost)["event"] == "log_lines_lost"
    assert 0 < json.loads(lost)["count"] < 2_000


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_left_out_where_nobody_wants_them(
    no_color: str, monkeypatch: pytest.MonkeyPatch, *, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal, slave = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as shown, os.fdopen(slave, "w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        configure_logging("info", "console")
        structlog.get_logger().info("node_ready")
        assert (b"\x1b[" in shown.read(4096)) is coloured
