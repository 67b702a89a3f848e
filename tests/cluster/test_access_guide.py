"""docs/access.md, step by step as it stands there: keys, devices on record, all over HTTP, the audit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import NodeProcess, devices
from tests.services import MosquittoProcess, RedisProcess

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "access.md").read_text("utf-8")
PRELUDE = """
set -euo pipefail
curl() { command curl --fail-with-body "$@"; }
homing() { PYTHON -m app.cli "$@"; }
"""


def steps(heading: str) -> str:
    """The first shell block below a heading."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None, heading
    return found[1]


class Shell:
    """Runs blocks in a folder of its own, where a node listens where the guide says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOMING_")},
            "PYTHONPATH": str(ROOT),
            "HOMING_ACCESS_URL": f"sqlite:///{folder / 'access.db'}",
        }
        self.address = "localhost:8080"

    def run(self, block: str, **env: str) -> str:
        script = PRELUDE.replace("PYTHON", sys.executable) + block.replace("localhost:8080", self.address)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide uses curl")
async def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    keys = re.findall(r"homing_\w+", shell.run(steps("From nothing to a key")))
    admin, ci = keys[:2]
    with MosquittoProcess() as broker, RedisProcess() as redis:
        node = NodeProcess("n1", redis, broker, module="app.cli", HOMING_ACCESS_URL=shell.env["HOMING_ACCESS_URL"])
        with node:
            shell.address = f"127.0.0.1:{node.port}"
            async with devices(broker, lambda device, command: device.answer(command)):
                me = shell.run('curl -s localhost:8080/v1/me -H "Authorization: Bearer $KEY"', KEY=ci)
                assert json.loads(me)["principal"] == "ci"
                sent = await asyncio.to_thread(shell.run, steps("Devices on record"), KEY=admin)
                assert '"state":"succeeded"' in sent
            done = shell.run(steps("Over HTTP"), KEY=admin)
            assert '"allowed":false' in done
            assert done.endswith('{"changes":[]}')
            bobs = re.findall(r"homing_\w+", done)[0]
            mine = shell.run('curl -s localhost:8080/v1/me -H "Authorization: Bearer $KEY"', KEY=bobs)
            assert json.loads(mine)["roles"] == ["opener"]
            node.stop()
            log = node.log_text
        (tmp_path / "node.log").write_text(log)
    kept = shell.run(steps("The audit").rpartition("curl")[0])
    assert '"method":"cover_open"' in kept
    assert "audit_head" in log
    assert (tmp_path / "audit.jsonl").read_text().count('"writer": "directory"') >= 5
