"""The settings that a folder implies for `homing up`, and those that contradict it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.core.broker.bounds import BrokerBounds
from app.core.errors import ConfigurationError
from app.core.sizes import MIB
from app.settings import Settings
from app.settings.one_folder import ADMIN_KEY, WEBHOOKS_KEY, settings_of_folder
from app.store.engine import folder_of
from tests.pages import ROOT


def settings(folder: Path, *, authenticate: bool = True, **overrides: object) -> Settings:
    return settings_of_folder(folder, authenticate=authenticate, _env_file=None, **overrides)


def bounds_of(found: Settings) -> list[int]:
    return [
        found.broker.max_connections,
        found.broker.max_sessions,
        found.broker.max_subscriptions,
        found.broker.max_waiting_bytes,
        found.broker.max_retained_bytes,
        found.store.records_bytes,
        found.store.tables_bytes,
        found.command.max_pending,
        found.command.max_waiters,
        found.api.max_connections,
    ]


def test_everything_is_in_the_folder(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found.store.url == found.events.url == f"rocks://{tmp_path}/store"
    assert found.access.url == f"sqlite:///{tmp_path}/access.db"
    assert (found.broker.url, found.mqtt.url) == ("mqtt://127.0.0.1:1883", "mqtt://127.0.0.1:1883")
    assert found.access.bootstrap_key_file is None, "there is none yet"
    assert found.webhooks.secret_key_file is None


def test_secrets_that_are_there_are_used(tmp_path: Path) -> None:
    (tmp_path / ADMIN_KEY).parent.mkdir()
    for name in (ADMIN_KEY, WEBHOOKS_KEY):
        (tmp_path / name).write_text("x")
    found = settings(tmp_path)
    assert found.access.bootstrap_key_file == tmp_path / ADMIN_KEY
    assert found.webhooks.secret_key_file == tmp_path / WEBHOOKS_KEY
    own = settings(tmp_path, access={"bootstrap_key": "k"}, webhooks={"secret_key": "s" * 32})
    assert (own.access.bootstrap_key_file, own.webhooks.secret_key_file) == (None, None)


def test_a_folder_with_an_awkward_name_is_found_again(tmp_path: Path) -> None:
    found = settings(tmp_path / "ä b#c?d%20")
    assert folder_of(found.store.url) == tmp_path / "ä b#c?d%20" / "store"


def test_what_the_environment_says_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_STORE_URL", "memory://")
    monkeypatch.setenv("HOMING_BROKER_URL", "mqtt://127.0.0.1:2883")
    monkeypatch.setenv("HOMING_ACCESS_URL", "sqlite:////elsewhere/access.db")
    found = settings(tmp_path)
    assert (found.store.url, found.access.url) == ("memory://", "sqlite:////elsewhere/access.db")
    assert found.mqtt.url == "mqtt://127.0.0.1:2883", "the node is connected to its own broker"
    assert settings(tmp_path, broker={"url": "mqtt://127.0.0.1:3883"}).mqtt.url == "mqtt://127.0.0.1:3883"


@pytest.mark.parametrize(
    ("listens", "connects"),
    [("mqtt://0.0.0.0:1884", "mqtt://127.0.0.1:1884"), ("mqtt://[::]:1884", "mqtt://[::1]:1884")],
)
def test_the_node_connects_to_an_address_and_not_to_all_of_them(tmp_path: Path, listens: str, connects: str) -> None:
    assert settings(tmp_path, broker={"url": listens}).mqtt.url == connects


def test_a_certificate_brings_a_second_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"cert_file": tmp_path / "a", "key_file": tmp_path / "b"}
    assert settings(tmp_path).broker.tls_url == ""
    found = settings(tmp_path, broker=files)
    assert (found.broker.url, found.broker.tls_url) == ("mqtt://127.0.0.1:1883", "mqtts://127.0.0.1:8883")
    assert found.mqtt.url == "mqtt://127.0.0.1:1883", "the node needs no TLS to itself"
    monkeypatch.setenv("HOMING_BROKER_TLS_URL", "mqtts://127.0.0.1:9883")
    assert settings(tmp_path, broker=files).broker.tls_url == "mqtts://127.0.0.1:9883"


def test_nobody_is_asked_for_a_key_where_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(tmp_path, authenticate=False).access.url == ""
    monkeypatch.setenv("HOMING_ACCESS_OPEN", "true")
    assert settings(tmp_path).access.url == ""


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HOMING_STORE_URL", "redis://127.0.0.1", "HOMING_STORE_URL is the store of a cluster, and homing up is one"),
        ("HOMING_MQTT_URL", "mqtt://broker.example", "HOMING_MQTT_URL names another broker than the one of homing up"),
        ("HOMING_ACCESS_URL", "sqlite:////a/b", "--open asks nobody for a key, and HOMING_ACCESS_URL does"),
        ("HOMING_BROKER_URL", "tcp://x", "HOMING_BROKER_URL: scheme 'tcp' is unknown"),
        ("HOMING_STORE_URL", "ftp://x", "HOMING_STORE_URL: scheme 'ftp' is unknown"),
    ],
)
def test_contradictions_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as refused:
        settings(tmp_path, authenticate=False)
    assert str(refused.value).startswith(said)


def test_the_same_broker_may_be_named_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_MQTT_URL", "mqtt://127.0.0.1")
    assert settings(tmp_path).mqtt.url == "mqtt://127.0.0.1"


@pytest.mark.parametrize("memory", ["", "512MiB"])
def test_bounds_of_the_usual_memory_are_below_those_of_every_node(memory: str, tmp_path: Path) -> None:
    found = settings(tmp_path, up={"memory": memory} if memory else {})
    assert found.up.memory == 512 * MIB
    assert bounds_of(found) == [4_000, 8_000, 40_000, 64 * MIB, 32 * MIB, 96 * MIB, 32 * MIB, 8_000, 2_000, 4_000]
    usual = bounds_of(Settings(_env_file=None))
    assert all(own < other for own, other in zip(bounds_of(found), usual, strict=True))


def test_bounds_of_the_broker_are_those_of_its_settings() -> None:
    bounds, usual = BrokerBounds(), Settings(_env_file=None).broker
    assert (bounds.sessions, bounds.all_subscriptions) == (usual.max_sessions, usual.max_subscriptions)
    assert (bounds.waiting_bytes, bounds.retained_bytes) == (usual.max_waiting_bytes, usual.max_retained_bytes)


def test_bounds_follow_from_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_UP_MEMORY", "336MiB")
    assert bounds_of(settings(tmp_path)) == [
        *(2_000, 4_000, 20_000),
        *(32 * MIB, 16 * MIB, 48 * MIB, 16 * MIB),
        *(4_000, 1_000, 2_000),
    ]
    monkeypatch.setenv("HOMING_UP_MEMORY", "128GiB")
    assert settings(tmp_path).api.max_connections == 1_000_000, "which is the most that a node may have"


def test_a_bound_that_is_set_does_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_UP_MEMORY", "256MiB")
    monkeypatch.setenv("HOMING_BROKER_MAX_CONNECTIONS", "4000")
    found = settings(tmp_path)
    assert found.broker.max_connections == 4_000
    assert found.broker.max_waiting_bytes < 40 * MIB


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("128MiB", "128MiB are too few: a node takes 160MiB before it keeps anything; allowed: 192MiB and more"),
        ("512", "'512' is not a size; allowed: a whole number and a unit out of MiB and GiB, such as 256MiB or 2GiB"),
        ("0.5GiB", "'0.5GiB' is not a size"),
    ],
)
def test_memory_that_is_none_or_too_little_is_refused(
    memory: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMING_UP_MEMORY", memory)
    with pytest.raises(ConfigurationError) as refused:
        settings(tmp_path)
    assert str(refused.value).startswith(f"HOMING_UP_MEMORY: {said}")


def test_the_page_has_the_bounds_that_follow(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations" / "small-box.md").read_text(encoding="utf-8")
    head, _, *rows = page.partition("| setting | 192MiB")[2].partition("\n\n")[0].splitlines()
    for column, size in enumerate(["192MiB", *(one.strip() for one in head.strip("| ").split("|"))], start=1):
        found = settings(tmp_path, up={"memory": size})
        for row in rows:
            cells = [cell.strip() for cell in row.strip("| ").split("|")]
            group, name = re.findall("HOMING_([A-Z]+)_([A-Z_]+)", cells[0])[0]
            value = getattr(getattr(found, group.lower()), name.lower())
            said = f"{value / MIB:.1f}".removesuffix(".0") + " MiB" if name.endswith("BYTES") else f"{value:,}"
            assert cells[column] == said, f"{cells[0]} of {size}"
    assert len(rows) == len(bounds_of(settings(tmp_path))) + 1
