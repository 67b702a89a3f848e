"""A slip in the name of a setting is an error: a node that starts with other settings than meant is a trap."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.core.redis_address import RedisTerms
from app.settings import check_names, load_settings, variables


@pytest.mark.parametrize(
    ("slip", "hint"),
    [
        ("HOMING_STROE_URL", "did you mean HOMING_STORE_URL?"),
        ("HOMING_STORE__URL", "did you mean HOMING_STORE_URL?"),
        ("HOMING_API_HOSTZ", "did you mean HOMING_API_HOST?"),
        ("HOMING_", ".env.example lists all of them"),
        ("HOMING_WHATEVER_THIS_IS", ".env.example lists all of them"),
        ("HOMING_TESTS", ".env.example lists all of them"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest_one(
    slip: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(slip, "x")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(_env_file=None)
    assert str(refused.value) == f"{slip} is no setting; {hint}"


def test_names_of_others_are_left_alone() -> None:
    check_names(variables())
    check_names(["PATH", "HOMINGS_STORE_URL", "homing_stroe_url", "HOMING_TEST_SERVICES", "HOMING_IMAGE"])


@pytest.mark.parametrize("service", ["", "REDIS_", "A_B_"])
def test_what_kubernetes_tells_of_its_services_is_left_alone(service: str) -> None:
    prefix = f"HOMING_{service}"
    check_names(
        [
            *(f"{prefix}SERVICE_HOST", f"{prefix}SERVICE_PORT", f"{prefix}SERVICE_PORT_HTTP", f"{prefix}PORT"),
            *(f"{prefix}PORT_8080_TCP{rest}" for rest in ("", "_PROTO", "_PORT", "_ADDR")),
        ]
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"HOMING_EVENTS_COLD": "cold"}, "HOMING_EVENTS_COLD needs a HOMING_EVENTS_URL that outlives the node"),
        (
            {
                "HOMING_STORE_URL": "redis://127.0.0.1",
                "HOMING_CLUSTER_LEASE": "28s",
                "HOMING_MQTT_SESSION_EXPIRY": "30s",
            },
            "HOMING_MQTT_SESSION_EXPIRY is over before another node adopts the session of a dead one",
        ),
        ({"HOMING_MQTT_CA_FILE": "ca.pem"}, "HOMING_MQTT_CA_FILE, HOMING_MQTT_CERT_FILE and HOMING_MQTT_KEY_FILE need"),
        (
            {"HOMING_MQTT_URL": "mqtts://b", "HOMING_MQTT_KEY_FILE": "node.key"},
            "HOMING_MQTT_KEY_FILE needs HOMING_MQTT_CERT_FILE",
        ),
        ({"HOMING_AUDIT_REQUIRED": "true"}, "HOMING_AUDIT_REQUIRED=true needs HOMING_ACCESS_URL"),
        (
            {"HOMING_AUDIT_REQUIRED": "true", "HOMING_AUDIT": "changes", "HOMING_ACCESS_URL": "sqlite:////a.db"},
            "HOMING_AUDIT_REQUIRED=true needs HOMING_ACCESS_URL and HOMING_AUDIT=commands",
        ),
        ({"HOMING_OIDC_ISSUER": "https://a.example"}, "HOMING_OIDC_ISSUER and HOMING_OIDC_AUDIENCE belong together"),
        ({"HOMING_OIDC_CLIENT_ID": "console"}, "HOMING_OIDC_CLIENT_ID and HOMING_OIDC_CONSOLE_URL belong together"),
        (
            {"HOMING_OIDC_CLIENT_ID": "console", "HOMING_OIDC_CONSOLE_URL": "https://a.example/console/"},
            "HOMING_OIDC_CLIENT_ID needs HOMING_OIDC_ISSUER: people log in there",
        ),
        ({"HOMING_OIDC_CONSOLE_URL": "https://a.example/console"}, "HOMING_OIDC_CONSOLE_URL: is no URL of a console"),
        (
            {"HOMING_OIDC_CONSOLE_URL": "https://a.example/console/?x"},
            "HOMING_OIDC_CONSOLE_URL: is no URL of a console",
        ),
        ({"HOMING_OIDC_SCOPE": 'openid "x"'}, "HOMING_OIDC_SCOPE: "),
        ({"HOMING_EVENTS_QUOTAS": "x"}, "HOMING_EVENTS_QUOTAS: "),
        ({"HOMING_API_PORT": "x"}, "HOMING_API_PORT: Input should be a valid integer"),
        ({"HOMING_REDIS_SENTINEL_USER": "x"}, "HOMING_REDIS_SENTINEL_USER needs HOMING_REDIS_SENTINEL_PASSWORD_FILE"),
        ({"HOMING_STORE_URL": "redis+cluster://a/1"}, "HOMING_STORE_URL: has a path, and a Redis Cluster has the"),
        ({"HOMING_STORE_URL": "redis+sentinel://a,b"}, "HOMING_STORE_URL: names no service"),
        ({"HOMING_STORE_URL": "ftp://a"}, "HOMING_STORE_URL: scheme 'ftp' is unknown"),
        ({"HOMING_STORE_URL": "memory://a"}, "HOMING_STORE_URL: has something behind memory://; allowed: memory://"),
        ({"HOMING_EVENTS_URL": "memory://a"}, "HOMING_EVENTS_URL: has something behind memory://; allowed: memory://"),
    ],
)
def test_an_error_begins_with_the_setting_that_it_is_about(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(_env_file=None)
    assert str(refused.value).startswith(said)


def test_a_node_alone_has_nobody_who_adopts_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_CLUSTER_LEASE", "28s")
    monkeypatch.setenv("HOMING_MQTT_SESSION_EXPIRY", "30s")
    assert load_settings(_env_file=None, store={"url": "memory://"}).mqtt.session_expiry.total_seconds() == 30


def test_the_password_for_sentinels_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv("HOMING_REDIS_SENTINEL_USER", "guard")
    monkeypatch.setenv("HOMING_REDIS_SENTINEL_PASSWORD_FILE", str(file))
    settings = load_settings(_env_file=None).redis
    with pytest.raises(ConfigurationError, match="PASSWORD_FILE cannot be read: No such file"):
        settings.terms()
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match="PASSWORD_FILE is empty; needed is the password"):
        settings.terms()
    file.write_text("CANARY\n")
    assert settings.terms() == RedisTerms("guard", "CANARY")
    assert "CANARY" not in repr(settings.terms())
