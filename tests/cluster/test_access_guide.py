"""docs/access.md, block by block as it stands there: keys, people, devices on record, all over HTTP, the audit."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from homing_rig.ports import lasting_port
from tests.cluster.test_tutorial import environment, run
from tests.pages import to_run
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess

__all__ = ["environment"]  # a fixture
PAGE = "docs/access.md"
PRELUDE = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
curl() { if [[ $1 == -fs ]]; then command curl "$@"; else command curl --fail-with-body "$@"; fi; }
"""
"""Failures are to be seen, though the guide does not ask for it."""


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide uses curl")
def test_the_guide_works_as_it_is_written(environment: dict[str, str], tmp_path: Path) -> None:
    port = str(lasting_port())
    with MosquittoProcess() as broker:
        script = PRELUDE + "echo\n".join(to_run(PAGE, "sh")) + "kill $node $docks; wait $node"
        for there, here in (
            ("localhost:8080", f"127.0.0.1:{port}"),
            ("mqtt://127.0.0.1:1883", broker.url),
            ("homing simulate", "HOMING_MQTT_USERNAME= HOMING_MQTT_PASSWORD= homing simulate"),
        ):
            assert there in script
            script = script.replace(there, here)
        settings = {
            "HOMING_API_PORT": port,
            "HOMING_URL": f"http://127.0.0.1:{port}",
            "HOMING_STORE_URL": "memory://",
            "HOMING_MQTT_USERNAME": NODE_USER,
            "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
        }
        said = run(script, environment | settings, tmp_path)
    assert '"principal":"ci"' in said
    assert "cover_open on dock-1: succeeded" in said
    assert '"allowed":false' in said
    assert '{"changes":[]}' in said
    assert '"method":"cover_open"' in said
    assert len(set(re.findall(r"homing_[0-9A-Z]{8}_\w+", said))) >= 4
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert sum(one["writer"] == "directory" for one in lines) >= 5
    assert "audit_head" in (tmp_path / "node.log").read_text()
