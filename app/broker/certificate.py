"""The certificates of TLS: the one that the broker shows, read anew when its files change, and those of clients."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from app.core.broker.rights import ClientCertificate
from app.core.clock import Clock
from app.core.errors import ConfigurationError

CERT_FILE: Final = "HOMING_BROKER_CERT_FILE"
KEY_FILE: Final = "HOMING_BROKER_KEY_FILE"
CLIENT_CA_FILE: Final = "HOMING_BROKER_CLIENT_CA_FILE"
DAY: Final = 86_400
SOON_DAYS: Final = 14
"""A certificate is talked about from so many days before its end on."""
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_KEY: Final = "PRIVATE KEY-----"
_VERSION_TAG: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG_LENGTH: Final = 0x80
_FIRST_YEAR: Final = 50
"""Years of two digits begin with 1950 (RFC 5280, 4.1.2.5.1)."""

_Stamp = tuple[int, int, int] | None
_Shown = Mapping[str, Any]

_log = structlog.get_logger(__name__)


class AlertingTls(ssl.SSLObject):
    """TLS whose client is told why a handshake has failed (RFC 8446, 6.2; docs/adr/0176).

    OpenSSL has written the alert when it raises an error, but asyncio and uvloop drop what is unsent at an error, and
    send it when more is to be read. So more is said to be needed once. What comes then, the client's end or the
    timeout of the handshake, ends the connection.
    """

    _fault: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """See SSLObject."""
        if self._fault is not None:
            raise self._fault
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as fault:
            self._fault = fault
            raise ssl.SSLWantReadError from fault


class ServerCertificate:
    """A certificate and its key, from two PEM files; ConfigurationError when they cannot be used.

    With a `client_ca_file`, clients may show a certificate that one of the authorities in it has made.

    `refresh` takes what has changed in the files, all or nothing: handshakes after it have the new certificate. It also
    tells when the end is near.
    """

    def __init__(self, cert_file: Path, key_file: Path, clock: Clock, client_ca_file: Path | None = None) -> None:
        self._files = (cert_file, key_file, client_ca_file)
        self._clock = clock
        self._loaded = self._settling = self._stamps()
        self._told_days: int | None = None
        self.context: Final = _context(cert_file, key_file, client_ca_file)
        """The context for the listener. It hands each handshake over to the present certificate."""
        self._current = self.context
        self._expires_at = _expiry_of(cert_file)
        self.context.sni_callback = self._choose

    @property
    def health(self) -> str:
        """The health, as services say it."""
        days = self.days_left
        if days < 0:
            return "ok, but the certificate of the broker has expired"
        return f"ok, but the certificate of the broker expires in {days} days" if days < SOON_DAYS else "ok"

    @property
    def days_left(self) -> int:
        """Days until it expires; negative afterwards."""
        return int((self._expires_at - self._clock.wall()) // DAY)

    def refresh(self) -> None:
        """Look at the files. What has changed is taken once it has stayed as it is for two looks."""
        stamps = self._stamps()
        if stamps != self._settling:
            self._settling = stamps
        elif stamps != self._loaded:
            self._loaded = stamps
            self._load()
        self._warn()

    def _load(self) -> None:
        cert_file = self._files[0]
        try:
            current, expires_at = _context(*self._files), _expiry_of(cert_file)
        except ConfigurationError as error:
            _log.error("broker_certificate_refused", reason=str(error))
            return
        self._current, self._expires_at, self._told_days = current, expires_at, None
        _log.info("broker_certificate_loaded", expires=datetime.fromtimestamp(expires_at, UTC).isoformat())

    def _warn(self) -> None:
        """Once a day, when the end is near."""
        days = self.days_left
        if days < SOON_DAYS and days != self._told_days:
            self._told_days = days
            _log.warning("broker_certificate_expires", days=days)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in each handshake, whether or not the client names a server."""
        connection.context = self._current

    def _stamps(self) -> list[_Stamp]:
        return [None if one is None else _stamp(one) for one in self._files]


def client_certificate(shown: _Shown) -> ClientCertificate | None:
    """Return the certificate as `ssl` tells of it; None where its subject has not one common name."""
    names = [value for part in shown.get("subject", ()) for kind, value in part if kind == "commonName"]
    if len(names) != 1 or not names[0]:
        return None
    begins, ends = (ssl.cert_time_to_seconds(shown[one]) for one in ("notBefore", "notAfter"))
    return ClientCertificate(names[0], begins, ends)


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _context(cert_file: Path, key_file: Path, client_ca_file: Path | None) -> ssl.SSLContext:
    """The context of these files, TLS 1.2 and newer; ConfigurationError says which one is wrong."""
    _check_pem(CERT_FILE, cert_file, _CERTIFICATE, "certificate")
    _check_pem(KEY_FILE, key_file, _KEY, "private key")

    def ask() -> str:
        raise ConfigurationError(f"{KEY_FILE}: {key_file} is encrypted, and nobody can be asked for its password")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AlertingTls
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file, password=ask)
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(
                f"{KEY_FILE}: {key_file} is not the key of the certificate in {cert_file}"
            ) from None
        raise ConfigurationError(
            f"{CERT_FILE}, {KEY_FILE}: {cert_file} and {key_file} cannot be used: {error}"
        ) from None
    if client_ca_file is not None:
        _ask_clients(context, client_ca_file)
    return context


def _ask_clients(context: ssl.SSLContext, client_ca_file: Path) -> None:
    """Let clients show certificates of these authorities. A session is never resumed: it would tell of an old one."""
    _check_pem(CLIENT_CA_FILE, client_ca_file, _CERTIFICATE, "certificate")
    try:
        context.load_verify_locations(client_ca_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{CLIENT_CA_FILE}: {client_ca_file} cannot be used: {error}") from None
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _check_pem(variable: str, file: Path, mark: str, kind: str) -> None:
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise ConfigurationError(f"{variable}: {file} cannot be read: {error.strerror}") from None
    if mark not in text:
        raise ConfigurationError(f"{variable}: {file} has no {kind} in the PEM format")


def _expiry_of(cert_file: Path) -> float:
    """The end of the first certificate in the file, in seconds since 1970; ConfigurationError."""
    try:
        text = cert_file.read_text(errors="replace")
        start = text.index(_CERTIFICATE)
        return not_after(ssl.PEM_cert_to_DER_cert(text[start : text.index(_END, start) + len(_END)]))
    except (OSError, ValueError, IndexError):
        raise ConfigurationError(f"{CERT_FILE}: {cert_file} has no certificate with a date of its end") from None


def not_after(certificate: bytes) -> float:
    """The end of a certificate in DER (RFC 5280, 4.1), in seconds since 1970; ValueError, IndexError."""
    _, at, _ = _element(certificate, 0)  # Certificate
    _, at, _ = _element(certificate, at)  # TBSCertificate
    tag, _, end = _element(certificate, at)
    for _ in range(4 if tag == _VERSION_TAG else 3):  # version, serial number, signature, issuer
        _, start, at = _element(certificate, at)
    _, start, _ = _element(certificate, at)  # validity
    _, _, at = _element(certificate, start)  # not before
    tag, start, end = _element(certificate, at)
    said = certificate[start:end].decode("ascii")
    if tag == _UTC_TIME:
        said = ("19" if int(said[:2]) >= _FIRST_YEAR else "20") + said
    return datetime.strptime(said, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element at this place, and where its content begins and ends."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= _LONG_LENGTH:
        size = length - _LONG_LENGTH
        length, start = int.from_bytes(data[start : start + size]), start + size
    return tag, start, start + length
