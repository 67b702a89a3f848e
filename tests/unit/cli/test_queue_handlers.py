"""Handlers of `homing queue consume --exec` that fork, that ignore signals, that take long, and that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.cli.queue_handlers import HandlerProcesses
from app.runtime.exits import Exit
from app.runtime.system import SystemClock
from tests.unit.cli.conftest import FakeNode
from tests.waiting import PATIENCE, eventually

LOAN = timedelta(seconds=30)
LARGE = b"x" * 1_000_000
"""More than a pipe takes before somebody reads."""
EVENT: dict[str, Any] = {"topic": "a/1", "data": 1}
TAKEN = {"loan": "00000001.events.0.17.0", "delivery": 1, "until": "2026-03-01T08:00:00Z", "database": "events"}


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def handlers_of(command: Sequence[str]) -> HandlerProcesses:
    return HandlerProcesses(command, SystemClock())


def extended() -> bool:
    return True


def test_a_handler_gets_the_event_and_its_exit_code_is_told(tmp_path: Path) -> None:
    assert handlers_of(shell(f"cat >{tmp_path}/got; exit 7")).run(LARGE, LOAN, extended) == 7
    assert (tmp_path / "got").read_bytes() == LARGE


def test_who_ends_is_done_though_what_it_started_reads_nothing_and_lives_on(tmp_path: Path) -> None:
    """The consumer would write into a pipe for ever, as the child has the other end."""
    command = shell(f"sleep 600 & echo $! >{tmp_path}/child; exit 0")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(handlers_of(command).run, LARGE, LOAN, extended)
        try:
            assert running.result(PATIENCE) == 0
        finally:
            os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_who_dies_of_a_signal_is_told_as_such() -> None:
    assert handlers_of(shell("kill -SEGV $$")).run(b"", LOAN, extended) == -signal.SIGSEGV


def test_what_a_handler_says_is_kept_by_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    assert handlers_of(shell("head -c 3000000 /dev/zero | tr '\\0' x >&2")).run(b"", LOAN, extended) == 0
    assert len(capfd.readouterr().err) == 3_000_000


def test_the_event_is_extended_while_its_handler_runs_until_it_is_lost(tmp_path: Path) -> None:
    asked: list[bool] = []

    def extend() -> bool:
        asked.append(True)
        if len(asked) < 3:
            return True
        (tmp_path / "go").touch()
        return False

    waits = shell(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 5")
    assert handlers_of(waits).run(b"", timedelta(milliseconds=30), extend) == 5
    assert len(asked) == 3


async def test_who_ignores_all_that_can_be_ignored_is_killed_with_its_children(tmp_path: Path) -> None:
    handlers = handlers_of(shell(f"trap '' TERM INT; (sleep 600; true) & echo $! >{tmp_path}/child; wait; true"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(handlers.run, b"", LOAN, extended)
        await eventually(lambda: is_written(tmp_path / "child"))
        handlers.end()
        assert running.result(PATIENCE) is None
    child = int((tmp_path / "child").read_text())
    await eventually(lambda: is_gone(child))
    assert handlers.run(b"", LOAN, extended) is None, "none is begun any more"


def is_written(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


def is_gone(pid: int) -> bool:
    """True if it has ended, though nobody may have asked yet how."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def consumer(node: FakeNode, command: Sequence[str], settled: int = 1) -> subprocess.Popen[bytes]:
    """A consumer in a process and a group of its own, to which somebody gives one event."""
    node.answers = [
        (200, {}),
        (200, {"loan": "30s"}),
        (200, {"events": [{**TAKEN, "event": EVENT}]}),
        (200, {"settled": settled, "over": [], "events": []}),
    ]
    words = ["queue", "consume", "alarms", "--dead-on-failure", "--url", node.url, "--exec", " ".join(command)]
    return subprocess.Popen([sys.executable, "-m", "app.cli", *words], start_new_session=True, stderr=subprocess.PIPE)


def settlements(node: FakeNode) -> list[Any]:
    return [body for _, path, _, body in node.asked if path.endswith("/settle")]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_makes_no_dead_letter_of_what_is_being_handled(
    fake_node: FakeNode, tmp_path: Path, how: signal.Signals
) -> None:
    """A terminal tells all processes of its group: the handler would die of it, which is a failure as any other."""
    script = tmp_path / "handler"
    script.write_text(f"touch {tmp_path}/began\nuntil [ -e {tmp_path}/go ]; do sleep 0.01; done\n")
    with consumer(fake_node, ["sh", str(script)]) as process:
        try:
            await eventually((tmp_path / "began").exists)
            os.killpg(process.pid, how)
            (tmp_path / "go").touch()
            assert process.wait(PATIENCE) == Exit.INTERRUPTED
        finally:
            process.kill()
    assert settlements(fake_node) == [{"done": [TAKEN["loan"]]}]


async def test_a_second_ctrl_c_gives_back_what_is_being_handled(fake_node: FakeNode, tmp_path: Path) -> None:
    script = tmp_path / "handler"
    script.write_text(f"trap '' INT TERM\ntouch {tmp_path}/began\nwhile true; do sleep 0.05; done\n")
    with consumer(fake_node, ["sh", str(script)]) as process:
        try:
            await eventually((tmp_path / "began").exists)
            os.killpg(process.pid, signal.SIGINT)
            assert process.stderr is not None
            said = asyncio.to_thread(process.stderr.readline)
            assert b"once more" in await asyncio.wait_for(said, PATIENCE)
            os.killpg(process.pid, signal.SIGINT)
            process.wait(PATIENCE)
        finally:
            process.kill()
    assert settlements(fake_node) == [{"release": [TAKEN["loan"]]}]


@pytest.mark.parametrize(("command", "said"), [("'./handle", "no closing quotation"), (" ", "no command")])
async def test_a_command_that_is_none_is_told_before_anything_is_taken(
    fake_node: FakeNode, command: str, said: str
) -> None:
    with consumer(fake_node, [command]) as process:
        _, told = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert process.returncode == Exit.USAGE
    assert told.startswith(b"homing: --exec: ")
    assert said.encode() in told
    assert not fake_node.asked


async def test_who_handled_an_event_that_others_may_have_is_told(fake_node: FakeNode) -> None:
    with consumer(fake_node, ["true"], settled=0) as process:
        try:
            assert process.stderr is not None
            said = asyncio.to_thread(process.stderr.readline)
            assert b"an event of a/1 was over" in await asyncio.wait_for(said, PATIENCE)
        finally:
            process.kill()


def printer(node: FakeNode, *options: str) -> subprocess.Popen[bytes]:
    """A consumer that prints events, in a process and a group of its own."""
    words = ["queue", "consume", "alarms", "--url", node.url, *options]
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", "app.cli", *words], start_new_session=True, stdout=pipe, stderr=pipe)


async def test_what_nobody_reads_any_more_is_given_back(fake_node: FakeNode) -> None:
    """As `head` has what it wanted; else each event would count as delivered once, or be done and seen by nobody."""
    events = {"events": [{**TAKEN, "event": EVENT}], "settled": 1, "over": []}
    fake_node.answers = [(200, events)]
    with printer(fake_node, "--parallel", "4") as process:
        try:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            process.stdout.close()
            process.wait(PATIENCE)
        finally:
            process.kill()
    taken = sum(path.endswith("/take") for _, path, _, _ in fake_node.asked)
    said = settlements(fake_node)
    assert len(said) == taken, "each is settled, or given back"
    assert {"release": [TAKEN["loan"]]} in said


async def test_ctrl_c_ends_a_consumer_whose_node_is_away(fake_node: FakeNode) -> None:
    """It would ask again for minutes."""
    fake_node.answers = [(200, {}), (503, {"type": "urn:homing:problem:unavailable", "status": 503})]
    with printer(fake_node) as process:
        try:
            await eventually(lambda: len(fake_node.asked) >= 6)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(PATIENCE) == Exit.INTERRUPTED
        finally:
            process.kill()


async def test_a_consumer_that_finds_no_node_says_so_at_once() -> None:
    """It would ask again for minutes, without a word, as for a node that is restarted."""
    with printer(FakeNode("http://127.0.0.1:9")) as process:
        try:
            _, told = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, told.startswith(b"homing: ")) == (Exit.UNREACHABLE, True)


async def test_consumers_without_a_name_are_told_apart(fake_node: FakeNode) -> None:
    """A queue for one consumer at a time would take all of them for one; all threads of one are one."""
    for _ in range(2):
        fake_node.answers = [(200, {"events": [{**TAKEN, "event": EVENT}], "settled": 1, "over": []})]
        with printer(fake_node, "--count", "4", "--parallel", "4") as process:
            process.communicate(timeout=PATIENCE)
    names = [body["consumer"] for _, path, _, body in fake_node.asked if path.endswith("/take")]
    assert all(names)
    assert [len(set(names[:4])), len(set(names[4:])), len(set(names))] == [1, 1, 2]
