from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.mqtt.renewable_tls import RenewableTls
from tests.certificates import CertificateAuthority


def test_everything_in_the_url_is_used_and_the_password_is_never_shown() -> None:
    options = MqttOptions.from_url("mqtts://user%40site:p%3Aw@broker.example:8884", client_id="a", version="3.1.1")
    assert (options.host, options.port, options.tls) == ("broker.example", 8884, True)
    assert (options.username, options.password, options.version) == ("user@site", "p:w", "3.1.1")
    assert "p:w" not in repr(options)


@pytest.mark.parametrize(("url", "port", "tls"), [("mqtt://h", 1883, False), ("mqtts://[::1]", 8883, True)])
def test_the_scheme_gives_the_port(url: str, port: int, *, tls: bool) -> None:
    options = MqttOptions.from_url(url, client_id="a")
    assert (options.port, options.tls) == (port, tls)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://u:secret@h", "allowed are mqtt://host:port and mqtts://host:port"),
        ("broker:1883", "allowed are mqtt"),
        ("", "allowed are mqtt"),
        ("mqtt://", "no host"),
        ("mqtt://u:secret@h:99999", "MQTT URL"),
        ("mqtt://u:secret@h:0", "allowed is 1 to 65535"),
        ("mqtt://u:secret@h:port", "MQTT URL"),
        ("mqtt://u:secret@h/path", "nothing may follow"),
    ],
)
def test_a_wrong_url_gives_a_sentence_without_the_password(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        MqttOptions.from_url(url, client_id="a")
    assert "secret" not in str(caught.value)


def test_values_outside_what_is_allowed_are_refused() -> None:
    good = MqttOptions(client_id="a", host="h")
    for change in ({"client_id": ""}, {"version": "4"}, {"receive_maximum": 0}, {"send_window": 65_536}):
        with pytest.raises(ConfigurationError):
            replace(good, **change)


def test_a_missing_certificate_is_told_at_once() -> None:
    options = replace(MqttOptions.from_url("mqtts://h", client_id="a"), ca_file=Path("/does/not/exist"))
    with pytest.raises(ConfigurationError, match=r"^HOMING_MQTT_CA_FILE: /does/not/exist cannot be read: No such file"):
        PahoMqttClient(options, Counter())


def test_files_that_are_renewed_count_from_the_next_connection_on(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = (CertificateAuthority(tmp_path / name, name).issue("node") for name in ("old", "new"))
    options = replace(
        MqttOptions.from_url("mqtts://h", client_id="a"),
        ca_file=old.authority,
        certificate_file=old.certificate,
        key_file=old.key,
    )
    tls = RenewableTls(options)

    def authority() -> str:
        context = tls.context()
        assert context is not None
        (shown,) = context.get_ca_certs()
        return str(shown["subject"])

    assert "old" in authority()
    assert tls.context() is tls.context(), "reading takes long"
    new.authority.replace(old.authority)
    new.certificate.replace(old.certificate)
    assert "old" in authority(), "the key is not there yet"
    new.key.replace(old.key)
    assert "new" in authority()
    old.authority.unlink()
    assert "new" in authority(), "a folder that is being filled anew takes nothing away"
    assert RenewableTls(MqttOptions.from_url("mqtt://h", client_id="a")).context() is None
