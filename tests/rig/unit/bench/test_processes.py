"""The private services of the benchmark start, stop, and say why when they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing_rig.bench.options import BenchError
from homing_rig.bench.processes import Processes, redis_memory
from tests import services


async def test_services_start_and_stop(tmp_path: Path) -> None:
    services.require_programs()
    started = Processes(tmp_path)
    try:
        redis, port = await started.redis()
        mosquitto, _ = await started.mosquitto()
        assert await redis_memory(port) > 100_000
        assert redis.resident_bytes() > 1_000_000
        assert mosquitto.cpu_seconds() >= 0
    finally:
        await started.stop()
    assert redis.process.returncode is not None
    assert mosquitto.process.returncode is not None


async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    started = Processes(tmp_path)
    command = ("/bin/sh", "-c", "echo no luck today; exit 3")
    try:
        with pytest.raises(BenchError, match=r"node-a ended with exit code 3: no luck today"):
            await started.node("node-a", command, {})
    finally:
        await started.stop()
