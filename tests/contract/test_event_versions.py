"""0.2.0 and this version share a Redis, or have a folder of RocksDB one after the other: each reads what is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.topics import matches
from tests.contract.speak_events import said
from tests.previous import ROOT, previous_version
from tests.services import RedisProcess

COMMIT = "be9413c2e354d9ff00abdaf0edf7661a1f9bfe6b"
FILTERS = ("#", "", "taught/+/x", "taught/3/x", "made/#", "made/20/+", "made/+/up1", "made/39/up1", "nothing")


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    with previous_version(COMMIT) as folder:
        yield folder


def speak(version: Path, url: str, *words: str) -> Any:  # noqa: ANN401 - what it says
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "tests" / "contract" / "speak_events.py"), url, *words],
        env={**os.environ, "PYTHONPATH": str(version)},
        cwd=version,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.startswith("[") else None


def expected(first: int, last: int) -> dict[str, list[int]]:
    numbers = range(first, last)
    return {one: [number for number in numbers if not one or matches(one, said(number).topic)] for one in FILTERS}


def test_a_folder_of_0_2_0_is_opened_gone_on_with_and_given_back(previous: Path, tmp_path: Path) -> None:
    url = f"rocks://{tmp_path}/log"
    speak(previous, url, "append", "0", "200")
    speak(previous, url, "rotate", "1")
    speak(previous, url, "append", "200", "100")
    found, generations = speak(ROOT, url, "read", *FILTERS)
    assert found == expected(0, 300)
    assert generations == 3, "one with an order has begun"
    speak(ROOT, url, "append", "300", "200")
    assert speak(ROOT, url, "read", *FILTERS) == [expected(0, 500), 3]
    assert speak(previous, url, "read", *FILTERS) == [expected(0, 500), 3], "whoever goes back finds everything"
    speak(previous, url, "append", "500", "100")
    assert speak(ROOT, url, "read", *FILTERS) == [expected(0, 600), 4], "what 0.2.0 has written there has no order"
    speak(ROOT, url, "append", "600", "100")
    assert speak(ROOT, url, "read", *FILTERS) == [expected(0, 700), 4]
    assert speak(ROOT, url, "pick") == list(range(700)), "with an order and without"


async def test_blocks_of_both_versions_lie_side_by_side(previous: Path, redis_server: RedisProcess) -> None:
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    url = redis_server.node_url
    for first, version in ((0, previous), (100, ROOT), (200, previous), (300, ROOT)):
        speak(version, url, "append", str(first), "100")
    for version in (previous, ROOT):
        assert speak(version, url, "read", *FILTERS) == [expected(0, 400), 1]
    speak(previous, url, "rotate", "1")
    speak(ROOT, url, "append", "400", "100")
    for version in (previous, ROOT):
        assert speak(version, url, "read", *FILTERS) == [expected(0, 500), 2]
    assert speak(ROOT, url, "pick") == list(range(500))
