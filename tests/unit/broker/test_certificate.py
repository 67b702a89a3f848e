"""The files of a certificate: what cannot be used is refused in a sentence, and what has changed is taken."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random
from ssl import PEM_cert_to_DER_cert

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from app.broker.certificate import ServerCertificate, not_after
from app.core.errors import ConfigurationError
from tests.certificates import CertificateFiles, make_certificate
from tests.services import find_binary
from tests.unit.assembly import ManualClock

DAY = 86_400


class CalendarClock(ManualClock):
    """A clock that begins today and passes when a test says so."""

    def __init__(self, today: float) -> None:
        super().__init__()
        self._today = today

    def wall(self) -> float:
        return self._today + self.now


def read(files: CertificateFiles) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes())


def opened(files: CertificateFiles, *, days_left: float = 90) -> tuple[ServerCertificate, CalendarClock]:
    clock = CalendarClock(read(files).not_valid_after_utc.timestamp() - days_left * DAY - 1000)
    return ServerCertificate(files.certificate, files.key, clock), clock


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("certificate is missing", "HOMING_BROKER_CERT_FILE: {cert} cannot be read: No such file or directory"),
        ("key is missing", "HOMING_BROKER_KEY_FILE: {key} cannot be read: No such file or directory"),
        ("certificate is a folder", "HOMING_BROKER_CERT_FILE: {cert} cannot be read: Is a directory"),
        ("certificate is text", "HOMING_BROKER_CERT_FILE: {cert} has no certificate in the PEM format"),
        ("key is the certificate", "HOMING_BROKER_KEY_FILE: {key} has no private key in the PEM format"),
        ("key is another's", "HOMING_BROKER_KEY_FILE: {key} is not the key of the certificate in {cert}"),
        ("key is encrypted", "HOMING_BROKER_KEY_FILE: {key} is encrypted, and nobody can be asked for its password"),
        ("certificate is damaged", "HOMING_BROKER_CERT_FILE, HOMING_BROKER_KEY_FILE: {cert} and {key} cannot be used:"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path, broken: str, said: str) -> None:
    files = make_certificate(tmp_path)
    match broken:
        case "certificate is missing":
            files.certificate.unlink()
        case "key is missing":
            files.key.unlink()
        case "certificate is a folder":
            files.certificate.unlink()
            files.certificate.mkdir()
        case "certificate is text":
            files.certificate.write_text("hello")
        case "key is the certificate":
            files.key.write_bytes(files.certificate.read_bytes())
        case "key is another's":
            make_certificate(tmp_path, "other").key.rename(files.key)
        case "key is encrypted":
            encrypt(files.key)
        case _:
            lines = files.certificate.read_text().splitlines()
            files.certificate.write_text("\n".join([*lines[:3], *lines[5:]]))
    with pytest.raises(ConfigurationError) as refused:
        ServerCertificate(files.certificate, files.key, ManualClock())
    assert str(refused.value).startswith(said.format(cert=files.certificate, key=files.key))


def encrypt(key: Path) -> None:
    command = [find_binary("openssl"), "pkcs8", "-topk8", "-in", str(key), "-out", f"{key}2", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    Path(f"{key}2").rename(key)


def test_its_end_is_that_of_the_first_certificate(tmp_path: Path) -> None:
    """`cryptography` is the judge: for short and long years, and with a chain behind it."""
    for days in (-30, 3, 365, 365 * 60):
        files = make_certificate(tmp_path, days=days)
        der = PEM_cert_to_DER_cert(files.certificate.read_text())
        assert not_after(der) == read(files).not_valid_after_utc.timestamp()
    files, ahead = make_certificate(tmp_path), make_certificate(tmp_path, "ca").authority
    files.certificate.write_bytes(files.certificate.read_bytes() + ahead.read_bytes())
    assert opened(files, days_left=60)[0].days_left == 60


def test_bytes_that_are_no_certificate_are_told_by_two_errors(tmp_path: Path) -> None:
    der = PEM_cert_to_DER_cert(make_certificate(tmp_path).certificate.read_text())
    chance = Random(7)
    for _ in range(2000):
        changed = bytearray(der[: chance.randrange(len(der))])
        for _ in range(min(3, len(changed))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            not_after(bytes(changed))
        except (ValueError, IndexError, OverflowError):
            continue


@pytest.mark.parametrize(
    ("days", "health"),
    [
        (15, "ok"),
        (9, "ok, but the certificate of the broker expires in 9 days"),
        (-1, "ok, but the certificate of the broker has expired"),
    ],
)
def test_an_end_that_is_near_is_told(tmp_path: Path, days: int, health: str) -> None:
    """A box without a battery may be wrong about the date, so it serves all the same."""
    files = make_certificate(tmp_path)
    with capture_logs() as logs:
        certificate, clock = opened(files, days_left=days)
        assert certificate.health == health
        for _ in range(3):
            certificate.refresh()
        assert [one["event"] for one in logs] == ["broker_certificate_expires"] * (days < 14)
        clock.advance(DAY)
        certificate.refresh()
    warned = [one["days"] for one in logs if one["event"] == "broker_certificate_expires"]
    assert warned == {15: [], 9: [9, 8], -1: [-1, -2]}[days]


def test_files_that_change_are_taken_when_they_are_at_rest_and_fit(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    certificate, _ = opened(files)
    before = certificate.days_left
    renewed = make_certificate(tmp_path, "renewed", days=400)
    with capture_logs() as logs:
        renewed.certificate.rename(files.certificate)
        certificate.refresh()
        assert not logs, "it may not be whole yet"
        for _ in range(3):
            certificate.refresh()
        assert [one["event"] for one in logs] == ["broker_certificate_refused"], "once, as the old key is there"
        assert certificate.days_left == before
        renewed.key.rename(files.key)
        for _ in range(3):
            certificate.refresh()
        assert [one["event"] for one in logs[1:]] == ["broker_certificate_loaded"]
        assert certificate.days_left > before
        files.key.unlink()
        for _ in range(3):
            certificate.refresh()
        assert [one["event"] for one in logs[2:]] == ["broker_certificate_refused"]
