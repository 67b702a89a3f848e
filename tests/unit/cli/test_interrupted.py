"""Interrupted commands: a person who presses Ctrl-C is told which one it is, as it goes on without them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from homing_client.testing import FakeHoming
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A child of a process that ignores SIGINT ignores it, too, as all do that a shell has in its background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("verb", ["send", "watch"])
async def test_ctrl_c_says_the_id(verb: str, tmp_path: Path) -> None:
    with FakeHoming() as fake:
        fake.on("dock-1", "fly", state="pending")
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "XDG_CONFIG_HOME": str(tmp_path)}

        def begin(*typed: str) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", "app.cli", *typed, "--url", fake.url]
            return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

        sent = begin("send", "dock-1", "fly", *(["--async"] if verb == "watch" else []))
        await eventually(lambda: fake.commands)
        (command,) = fake.commands
        running = begin("watch", command.id) if verb == "watch" else sent
        await eventually(lambda: [one for one in fake.requests if one.endswith("/events")])
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
        assert running.returncode == 130
        assert f"homing watch {command.id}" in said
        fake.finish(command.id)
        sent.communicate()
