"""0.2.0 and this version share a Redis with a webhook that has a queue: 0.2.0 leaves it alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.webhooks.deliveries import decode_endpoint, encode_endpoint
from app.core.webhooks.endpoints import Endpoint, EventType
from tests.contract.test_event_versions import COMMIT
from tests.previous import previous_version

PUSHED = Endpoint("wh_1", "air", "https://a.example", frozenset(), "queue/alarms", "*:*", 17, queue="alarms", batch=8)
TOLD = Endpoint("wh_2", "air", "https://a.example", frozenset({EventType.FAILED}), "dock-*", "*:*", 17)
READ = """
import json, sys
from app.core.webhooks.deliveries import decode_endpoint, encode_endpoint
said = []
for document in json.load(sys.stdin):
    one = decode_endpoint(document.encode())
    wants = [one.wants(device, "dji", "x") for device in ("dock-1", "queue", "alarms", "*")]
    said.append([sorted(one.events), wants, encode_endpoint(one).decode() == document])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    with previous_version(COMMIT) as folder:
        yield folder


def test_an_endpoint_is_read_as_it_was_written() -> None:
    for one in (PUSHED, TOLD):
        assert decode_endpoint(encode_endpoint(one)) == one


def test_0_2_0_has_nothing_to_tell_an_endpoint_with_a_queue_and_cannot_write_it(previous: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ],
        input=json.dumps([encode_endpoint(one).decode() for one in (PUSHED, TOLD)]),
        env={**os.environ, "PYTHONPATH": str(previous)},
        cwd=previous,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # What it writes has to begin from the very bytes that are there: it has others, and so it changes nothing.
    assert json.loads(done.stdout) == [
        [[], [False] * 4, False],
        [["command.failed"], [True, False, False, False], True],
    ]
