"""The private services of a rig are those that Homing is to be run with."""

from __future__ import annotations

import pytest

from homing_rig import programs
from homing_rig.programs import MOSQUITTO_SETTINGS, NotInstalledError, find_binary
from tests.services import DEPLOY

DEPLOYED = DEPLOY / "mosquitto.conf"
PLACES = ("listener", "persistence_location")


def test_mosquitto_has_the_limits_that_are_deployed() -> None:
    lines = [line for line in DEPLOYED.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert sorted(MOSQUITTO_SETTINGS) == sorted(line for line in lines if line.split(" ")[0] not in PLACES)


def test_a_missing_program_is_a_sentence() -> None:
    with pytest.raises(NotInstalledError, match=r"no-such-program is not installed \(Debian, Ubuntu: apt install"):
        find_binary("no-such-program")


def test_the_users_own_settings_do_not_reach_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_STORE_URL", "redis://production")
    monkeypatch.setenv("homing_log_level", "debug")
    environment = programs.environment({"HOMING_NODE_ID": "a"})
    assert [name for name in environment if name.upper().startswith("HOMING_")] == ["HOMING_NODE_ID"]
