"""The lines of the log, at a terminal and for programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
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
