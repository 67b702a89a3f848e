"""Server processes of the rig."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from homing_rig.chaos.servers import ServerProcess
from tests.waiting import eventually


class Sleeper(ServerProcess):
    """A process that serves nothing, and ends at once when it is told to."""

    dies = False

    async def ready(self) -> bool:
        return True

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-c", "" if self.dies else "import time; time.sleep(600)"]


async def test_a_server_that_ends_by_itself_has_died_and_one_that_is_ended_has_not(tmp_path: Path) -> None:
    one = Sleeper("one", tmp_path)
    await one.start()
    await one.kill()
    await one.start()
    await one.stop()
    assert one.died == 0
    one.dies = True
    await one.spawn()
    await eventually(lambda: not one.running)
    assert one.died == 1, "also before anybody starts it again"
    one.dies = False
    await one.spawn()
    assert one.died == 1
    await one.kill()


def test_a_traceback_in_its_log_is_counted_as_it_is_written_by_structlog_or_by_python(tmp_path: Path) -> None:
    one = Sleeper("one", tmp_path)
    assert one.tracebacks == 0
    record = r'{"event": "observer_failed", "exception": "Traceback (most recent call last):\n  File ..."}'
    one.log.write_text(f'{{"event": "node_ready"}}\n{record}\nTraceback (most recent call last):\n  File ...\n')
    assert one.tracebacks == 2
