"""The settings that a folder implies for `homing up`, and those that contradict it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.settings import Settings
from app.settings.one_folder import ADMIN_KEY, WEBHOOKS_KEY, settings_of_folder
from app.store.engine import folder_of


def settings(folder: Path, *, authenticate: bool = True, **overrides: object) -> Settings:
    return settings_of_folder(folder, authenticate=authenticate, _env_file=None, **overrides)


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
