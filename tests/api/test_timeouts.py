"""Timeouts that were learned: caller, then device group, then method, then the default."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from tests.api.rig import running

LEARNED = """
version = 1
device_group = '^(.*)-[0-9]+$'

[[timeout]]
profile = "homing"
method = "ok"
timeout = "3s"

[[timeout]]
profile = "homing"
method = "big"
timeout = "3s"

[[timeout]]
profile = "homing"
method = "big"
device_group = "drone"
timeout = "4s"

[[timeout]]
profile = "homing"
method = "slow"
timeout = "2h"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "timeouts.toml"
    path.write_text(LEARNED, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("members", "seconds"),
    [
        ({"method": "ok", "timeout": "7s"}, 7),
        ({"method": "ok"}, 3),
        ({"method": "big"}, 4),
        ({"method": "big", "timeout": "1s"}, 1),
        ({"method": "slow"}, 3600),  # HOMING_COMMAND_MAX_TIMEOUT
        ({"method": "other"}, 10),  # HOMING_COMMAND_DEFAULT_TIMEOUT
    ],
)
async def test_the_timeout_of_a_caller_who_gives_none(file: Path, members: dict[str, Any], seconds: int) -> None:
    async with running(timeouts={"file": file}) as rig:
        await rig.send(headers={"prefer": "respond-async"}, **members)
        (registration,) = rig.store.registrations
        assert registration.timeout == timedelta(seconds=seconds)


async def test_without_a_file_the_default_holds() -> None:
    async with running() as rig:
        await rig.send("ok")
        assert rig.store.registrations[0].timeout == timedelta(seconds=10)


async def test_the_default_is_never_longer_than_what_a_caller_may_ask_for() -> None:
    async with running(command={"default_timeout": timedelta(hours=2), "max_timeout": timedelta(minutes=1)}) as rig:
        await rig.send("ok")
        assert rig.store.registrations[0].timeout == timedelta(minutes=1)


async def test_an_idempotency_key_holds_across_nodes_with_different_files(tmp_path: Path) -> None:
    fingerprints = set()
    for number, timeout in enumerate(("3s", "5s")):
        path = tmp_path / f"{number}.toml"
        path.write_text(LEARNED.replace("3s", timeout), encoding="utf-8")
        async with running(timeouts={"file": path}) as rig:
            await rig.send("ok", headers={"idempotency-key": "k"})
            await rig.send("ok", headers={"idempotency-key": "l"}, timeout=timeout)
            fingerprints |= {one.fingerprint for one in rig.store.registrations}
    assert len(fingerprints) == 3  # with none given, and one for each that was given


async def test_a_wrong_file_refuses_the_start(file: Path) -> None:
    file.write_text(LEARNED.replace("4s", "4 s"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"timeouts\.toml: timeout\.3\.timeout: '4 s' is not a duration"):
        async with running(timeouts={"file": file}):
            pass
