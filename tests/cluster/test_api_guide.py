"""docs/api.md works as it is written: each way to learn what became of a command, with curl, against the demo."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from app.runtime.system import new_secret
from homing_rig.ports import lasting_port
from tests.cluster.test_tutorial import demo, environment, run

GUIDE = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
__all__ = ["environment"]  # a fixture


def blocks(heading: str) -> list[str]:
    """The shell blocks below a heading."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_walk(environment: dict[str, str], tmp_path: Path) -> None:
    settings, prelude = re.findall(r"^```sh\n(.+?)^```$", GUIDE.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    assert all(name in settings for name in WEBHOOKS)
    headings = re.findall(r"^## (.+)$", GUIDE, re.MULTILINE)
    said: dict[str, str] = {}
    with demo(environment | WEBHOOKS | {"HOMING_WEBHOOKS_SECRET_KEY": new_secret()}) as url:
        script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + prelude.replace("http://127.0.0.1:8080", url)
        for heading in headings:
            script += f"echo '## {heading}'\n" + "echo\n".join(blocks(heading)) + "\necho\n"
        whole = run("set -e\n" + script.replace("9000", str(lasting_port())), environment, tmp_path)
    for part in whole.split("## ")[1:]:
        heading, _, said[heading] = part.partition("\n")
    assert json.loads(said["Send, and wait for the outcome"])["state"] == "succeeded"
    assert json.loads(said["Send, and come back"])["method"] == "flighttask_execute"
    assert '"state":"held"' in said["Send when the device is back"]
    assert '"state":"cancelled"' in said["Send when the device is back"]
    followed = said["Follow it"]
    assert followed.count("event: progress") >= 2
    assert followed.count("event: outcome") == 2
    assert "\n204\n" in followed
    assert '"type":"command.succeeded"' in (tmp_path / "told.ndjson").read_text()
    assert '"deliveries"' in said["Be told"]
    assert json.loads(said["Ask why"])["verdict"]["code"] == "no_subscriber"


WEBHOOKS = {"HOMING_WEBHOOKS_NETWORKS": "127.0.0.0/8", "HOMING_WEBHOOKS_PLAIN_HTTP": "true"}
