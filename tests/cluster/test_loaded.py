"""The libraries that an idle `homing up` has in memory: `-X importtime` tells of each module that Python loads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from tests.cluster.test_up import UpProcess
from tests.waiting import PATIENCE, eventually

MODULE = re.compile(r"^import time:.*\| +(\S+)$", re.MULTILINE)
NEVER = {
    *(
        "aiohttp",
        "alembic",
        "attr._make",
        "duckdb",
        "fsspec",
        "google.protobuf",
        "hiredis",
        "httpx",
        "jinja2",
        "jsonschema",
    ),
    *(
        "joserfc",
        "jsonschema_rs",
        "opentelemetry.sdk",
        "psutil",
        "psycopg",
        "pyarrow",
        "pygments",
        "pyspark",
        "redis",
        "requests",
    ),
    *("rich.console", "tomlkit", "yaml"),
}
"""Libraries that are heavy and idle: what needs one of them loads it when there is something to do."""
OF_A_DIRECTORY = {"aiosqlite", "argon2", "sqlalchemy"}


class WatchedProcess(UpProcess):
    """`homing up` that tells of its imports on standard error."""

    forked = False

    def _command(self) -> Sequence[str]:
        *words, option, module = (command := list(super()._command()))[: command.index("-m") + 2]
        return [*words, "-X", "importtime", option, module, *command[command.index("-m") + 2 :]]

    async def loaded_at_second_start(self) -> set[str]:
        """Return the modules that were loaded until it told how to go on, with the tables of the first start."""
        await asyncio.to_thread(self.kill)
        before = len(self.log_text)
        await asyncio.to_thread(self.start)
        await eventually(lambda: "Ctrl-C ends it." in self.log_text[before:], 4 * PATIENCE)
        return set(MODULE.findall(self.log_text[before:]))


@pytest.mark.parametrize("options", [["--open"], []], ids=["open", "with a directory"])
async def test_an_idle_process_has_loaded_nothing_that_waits_to_be_needed(options: list[str]) -> None:
    with WatchedProcess(*options) as process:
        loaded = await process.loaded_at_second_start()
    assert {"app.main", "structlog", "fastapi"} <= loaded, "the modules were told"
    assert loaded & NEVER == set()
    assert (loaded & OF_A_DIRECTORY == set()) is bool(options)
