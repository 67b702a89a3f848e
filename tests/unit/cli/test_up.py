"""Wrong input to `homing up` is refused before a node is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.up import PatientStart, next_steps
from app.settings.one_folder import settings_of_folder
from tests.unit.cli.conftest import Homing

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (
            ["--mqtt", "nonsense:x"],
            {},
            "--mqtt: 'nonsense:x' is no address; allowed: HOST:PORT, such as 127.0.0.1:1883",
        ),
        (["--mqtt", ""], {}, "--mqtt: '' is no address"),
        (["--mqtt", "1884"], {}, "--mqtt: '1884' is no address; allowed: HOST:PORT, such as 127.0.0.1:1883"),
        (["--api", "8081"], {}, "--api: '8081' is no address; allowed: HOST:PORT, such as 127.0.0.1:8080"),
        (["--mqtt", "u:p@127.0.0.1:1"], {}, "--mqtt: 'u:p@127.0.0.1:1' is no address"),
        (["--api", "http://x"], {}, "--api: 'http://x' is no address; allowed: HOST:PORT, such as 127.0.0.1:8080"),
        (["--mqtt", "127.0.0.1:0"], {}, "HOMING_BROKER_URL: names no address to listen on"),
        (["--mqtts", "x:y"], {}, "--mqtts: 'x:y' is no address; allowed: HOST:PORT, such as 127.0.0.1:8883"),
        (["--tls-cert", "a.pem"], {}, "--tls-cert and --tls-key belong together: one of them is missing"),
        (["--mqtts", "127.0.0.1:1"], {}, "HOMING_BROKER_TLS_URL needs HOMING_BROKER_CERT_FILE and"),
        (["--tls-client-ca", "a.pem"], {}, "HOMING_BROKER_CLIENT_CA_FILE needs HOMING_BROKER_TLS_URL"),
        (
            ["--open", "--tls-cert", "a", "--tls-key", "b", "--tls-client-ca", "c"],
            {},
            "HOMING_BROKER_CLIENT_CA_FILE needs HOMING_ACCESS_URL: there it says which devices may come",
        ),
        ([], {"HOMING_BROKER_KEY_FILE": "a"}, "HOMING_BROKER_CERT_FILE and HOMING_BROKER_KEY_FILE need"),
        (["--open", "--api", f"{EVERYWHERE}:0"], {}, "0.0.0.0 can be reached from outside, and this node does not"),
        (["--open"], {"HOMING_ACCESS_URL": "sqlite:////a"}, "--open asks nobody for a key, and HOMING_ACCESS_URL does"),
        ([], {"HOMING_STORE_URL": "redis://127.0.0.1"}, "HOMING_STORE_URL is the store of a cluster, and homing up"),
        ([], {"HOMING_MQTT_URL": "mqtt://x.example"}, "HOMING_MQTT_URL names another broker than the one of homing up"),
        ([], {"HOMING_STROE_URL": "x"}, "HOMING_STROE_URL is no setting; did you mean HOMING_STORE_URL?"),
    ],
)
def test_contradictions_and_slips_get_a_sentence(
    homing: Homing, monkeypatch: pytest.MonkeyPatch, words: list[str], env: dict[str, str], said: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    code, out, err = homing("up", *words)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"homing: {said}")


def test_a_folder_of_somebody_else_is_left_alone(homing: Homing, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    code, out, err = homing("up", "--data", "letters")
    assert (code, out) == (2, "")
    assert err == f"homing: {tmp_path}/letters is not empty, and not a folder of homing up; name a new or empty one\n"
    assert [one.name for one in (tmp_path / "letters").iterdir()] == ["dear.txt"]


@pytest.mark.parametrize("variable", ["HOMING_STORE_URL", "HOMING_EVENTS_URL"])
def test_the_folder_is_no_store_itself(
    homing: Homing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """The process would find it in use, by itself."""
    monkeypatch.setenv(variable, f"rocks://{tmp_path}/../{tmp_path.name}/data")
    code, out, err = homing("up", "--data", "data")
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {variable} names the folder of homing up itself, which has commands and events in")
    assert not (tmp_path / "data").exists()


def test_the_next_steps_name_the_key_if_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    url = "http://127.0.0.1:8080"
    without = next_steps(settings_of_folder(folder, authenticate=False, _env_file=None), url, folder)
    assert f"Shell     export HOMING_URL={url}" in without
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets" / "admin.key").write_text("x")
    lines = next_steps(settings_of_folder(folder, authenticate=True, _env_file=None), url, folder)
    assert f"Shell     export HOMING_URL={url} HOMING_KEY=$(cat '{folder}/secrets/admin.key')" in lines


def test_a_start_that_waits_for_a_backup_says_so_every_minute(capsys: pytest.CaptureFixture[str]) -> None:
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    start = PatientStart(lambda: passed[0], sleep)
    while passed[0] < 130:
        start.wait("data is being copied by process 7")
    waits = "data is being copied by process 7: this start waits until the copy is there"
    ending = "so far; ending that process ends the backup, and lets this one start"
    assert capsys.readouterr().err.splitlines() == [
        waits,
        f"{waits}, for 1 min {ending}",
        f"{waits}, for 2 min {ending}",
    ]
