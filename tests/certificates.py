"""Certificates of an authority of the test's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.runtime.system import SystemClock


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: a certificate for 127.0.0.1 and localhost, its key, and the authority to trust."""

    certificate: Path
    key: Path
    authority: Path


class CertificateAuthority:
    """Makes certificates that are valid from long ago on; `file` has its own."""

    def __init__(self, folder: Path, name: str = "authority", file: str = "ca.pem") -> None:
        self._folder, self._name, self._key = folder, _name(name), ec.generate_private_key(ec.SECP256R1())
        root = (
            _builder(self._name, self._name, _now() + timedelta(days=3650))
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / file
        self.file.write_bytes(root.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, days: float = 90) -> CertificateFiles:
        """A certificate of this common name, valid until so many days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
        leaf = (
            _builder(_name(name), self._name, _now() + timedelta(days=days))
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = CertificateFiles(self._folder / f"{name}.pem", self._folder / f"{name}.key", self.file)
        files.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def make_certificate(folder: Path, name: str = "server", *, days: float = 90) -> CertificateFiles:
    """A certificate that an authority of its own has signed, valid until so many days from now, and from long ago."""
    return CertificateAuthority(folder, f"authority of {name}", f"{name}-ca.pem").issue(name, days=days)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().wall(), UTC)


def redis_tls(files: CertificateFiles, port: int) -> tuple[str, ...]:
    """The options of a Redis that speaks TLS on this port, and asks clients for no certificate."""
    own = ("--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key))
    return ("--tls-port", str(port), *own, "--tls-ca-cert-file", str(files.authority), "--tls-auth-clients", "no")


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(end)
    )
