"""The options that people may give the benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import ConfigurationError
from homing_rig.bench import BenchOptions


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"profile": "x"}, "profile: 'x' is unknown; allowed: dji, homing"),
        ({"devices": 0}, "devices: 0; allowed are 1 to"),
        ({"in_flight": 0}, "in_flight: 0; allowed are 1 to"),
        ({"rounds": 0}, "rounds"),
        ({"seconds": 0.0}, "seconds"),
        ({"commands": 0}, "commands"),
        ({"singles": 0}, "singles"),
        ({"pending": (10, 10)}, "pending: numbers from 1 on in rising order"),
        ({"pending": (0,)}, "pending"),
        ({"nodes_url": "http://h:1"}, "give both"),
        ({"mqtt_url": "mqtt://h:1"}, "give both"),
        ({"nodes_url": "https://h:1", "mqtt_url": "mqtt://h"}, "nodes_url: allowed is http://host:port"),
        ({"nodes_url": "http://", "mqtt_url": "mqtt://h"}, "nodes_url: allowed is http://host:port"),
        ({"nodes_url": "http://h:x", "mqtt_url": "mqtt://h"}, "nodes_url"),
        ({"nodes_url": "http://h", "mqtt_url": "mqtt://h", "pending": (1,)}, "private nodes only"),
    ],
)
def test_wrong_options_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        BenchOptions(**wrong)


def test_running_nodes_are_named_by_url() -> None:
    options = BenchOptions(nodes_url="http://node.example:8081", mqtt_url="mqtt://broker.example")
    assert options.host_port == ("node.example", 8081)
