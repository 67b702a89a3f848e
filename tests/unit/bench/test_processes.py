"""The private services of the benchmark are those that Homing is to be run with."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bench import processes
from app.bench.options import BenchError
from app.bench.processes import MOSQUITTO_SETTINGS, Processes, find_binary, redis_memory
from tests import services

DEPLOYED = Path(__file__).parents[3] / "deploy" / "mosquitto.conf"
PLACES = ("listener", "persistence_location")


def test_mosquitto_has_the_limits_that_are_deployed() -> None:
    lines = [line for line in DEPLOYED.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert sorted(MOSQUITTO_SETTINGS) == sorted(line for line in lines if line.split(" ")[0] not in PLACES)


def test_a_missing_program_is_a_sentence() -> None:
    with pytest.raises(BenchError, match=r"no-such-program is not installed \(Debian, Ubuntu: apt install"):
        find_binary("no-such-program")


def test_the_users_own_settings_do_not_reach_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_STORE_URL", "redis://production")
    monkeypatch.setenv("homing_log_level", "debug")
    environment = processes.environment({"HOMING_NODE_ID": "a"})
    assert [name for name in environment if name.upper().startswith("HOMING_")] == ["HOMING_NODE_ID"]


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
