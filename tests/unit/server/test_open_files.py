"""Callers of a node and clients of its broker share the files that the system lets it open."""

from __future__ import annotations

import resource

import pytest
from structlog.testing import capture_logs

from app.server.open_files import limits_of
from app.settings import ApiSettings, Settings
from app.settings.broker import BrokerSettings

BROKER = BrokerSettings(url="mqtt://127.0.0.1:1883", max_connections=3_000)


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of the system, which a node may move."""
    found = [100, 100_000]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(found))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: found.__setitem__(slice(None), limits))
    return found


def settings(broker: BrokerSettings | None = None) -> Settings:
    api = ApiSettings(max_connections=1_000, max_connections_per_peer=400)
    return Settings(_env_file=None, api=api, broker=broker or BrokerSettings())


def test_all_have_what_is_set_where_the_system_lets_them(allowed: list[int]) -> None:
    asked = settings(BROKER)
    limits, found = limits_of(asked)
    assert (limits.connections, limits.per_peer, found) == (1_000, 400, asked)
    assert 4_100 < allowed[0] < 4_300, "the soft limit is raised as far as it must"


def test_each_has_its_part_of_what_is_left(allowed: list[int]) -> None:
    allowed[1] = 1_000
    with capture_logs() as logs:
        limits, found = limits_of(settings(BROKER))
    assert limits.connections + found.broker.max_connections < 1_000 - 128
    assert 180 < limits.connections < 220
    assert limits.per_peer == limits.connections, "which is less than one address might have"
    assert found.broker.max_connections == pytest.approx(3 * limits.connections, abs=3)
    told = {"connections": limits.connections, "broker_connections": found.broker.max_connections, "open_files": 1_000}
    assert logs == [{"event": "connections_limited", "log_level": "warning"} | told]


def test_without_a_broker_callers_have_all_of_it(allowed: list[int]) -> None:
    allowed[1] = 1_000
    asked = settings()
    limits, found = limits_of(asked)
    assert 800 < limits.connections < 1_000
    assert found == asked


def test_everybody_has_one_where_there_is_nothing_left(allowed: list[int]) -> None:
    allowed[1] = 100
    limits, found = limits_of(settings(BROKER))
    assert (limits.connections, found.broker.max_connections) == (1, 1)
