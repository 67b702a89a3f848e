"""docs/operations/small-box.md, block by block as it stands there: `homing up` is killed and started again."""

from __future__ import annotations

from pathlib import Path

from homing_rig.ports import lasting_port
from tests.cluster.test_tutorial import environment, run
from tests.pages import to_run
from tests.services import find_binary
from tests.waiting import PATIENCE

__all__ = ["environment"]  # a fixture
PAGE = "docs/operations/small-box.md"
PRELUDE = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"""


def test_the_page_works_as_it_is_written(environment: dict[str, str], tmp_path: Path) -> None:
    find_binary("mosquitto_pub", "mosquitto-clients")
    port, broker = str(lasting_port()), str(lasting_port())
    script = PRELUDE + "echo ---\n".join(to_run(PAGE, "sh")) + "kill $up $fleet; wait $up"
    assert "mosquitto_pub -u" in script
    script = script.replace("mosquitto_pub -u", f"mosquitto_pub -p {broker} -u")
    settings = {
        "HOMING_API_PORT": port,
        "HOMING_URL": f"http://127.0.0.1:{port}",
        "HOMING_BROKER_URL": f"mqtt://127.0.0.1:{broker}",
        "HOMING_MQTT_URL": f"mqtt://127.0.0.1:{broker}",
    }
    first, second, third = run(script, environment | settings, tmp_path, 6 * PATIENCE).split("---\n")
    assert "Homing is up" in first
    assert "admin" in first
    assert "blink on lamp-1: succeeded" in second
    assert "overheated" in second
    assert "overheated" in third
    assert "blink on lamp-1: succeeded" in third
    assert "succeeded" in third.partition("overheated")[0], "the command of before the kill is listed"
