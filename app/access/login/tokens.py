"""Tokens of an OIDC issuer: JWTs (RFC 7519) that are signed with one of its keys, checked as RFC 8725 advises."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeGuard

import orjson
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwa import JWSAlgModel

from app.access.login.key_set import ALGORITHMS, SigningKey
from app.core.access.callers import Caller, TokenFault
from app.core.access.memo import Memo
from app.core.clock import Clock

LEEWAY_SECONDS: Final = 30
LIFE_SECONDS: Final = 24 * 60 * 60
REMEMBERED_SECONDS: Final = 60
MAX_LENGTH: Final = 8_192
MAX_GROUPS: Final = 256
_REMEMBERED: Final = 10_000
_MAX_NAME: Final = 255
_LAST_SECOND: Final = 2**53
_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_REFUSED: Final = frozenset({"cty", "enc", "jku", "jwk", "x5u", "x5c"})
"""Headers of tokens within tokens, and of those that bring their own key or say where to fetch it."""


class _Registry(jws.JWSRegistry):
    """Our algorithms, without a warning for each token of an issuer that still says EdDSA for Ed25519 (RFC 9864)."""

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


_REGISTRY: Final = _Registry(strict_check_header=False)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The issuer whose tokens are accepted, and the claims to read in them."""

    issuer: str
    audience: str
    groups_claim: str = "groups"
    tenant_claim: str = ""
    """Empty: tokens say nothing of tenants. Else each must have it."""


class VerifyingKeys(Protocol):
    """The keys by which tokens of the issuer are verified."""

    def find(self, kid: str) -> SigningKey | None:
        """The key of this id, as far as it is known; nobody waits for the issuer."""

    def __len__(self) -> int:
        """The number of keys that count."""


class _Remembered(NamedTuple):
    caller: Caller
    until: float
    """Seconds since the Unix epoch."""


class Tokens:
    """Verifies tokens, and remembers those that it accepted for a minute by their SHA-256."""

    def __init__(self, rules: TokenRules, keys: VerifyingKeys, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock
        self._remembered: Final[Memo[bytes, _Remembered]] = Memo(_REMEMBERED)

    def verify(self, text: str) -> Caller | TokenFault:
        """Return the caller who has shown the token, or the reason why it counts for nothing."""
        seen = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        now = self._clock.wall()
        known = self._remembered.get(seen)
        if known is not None and now < known.until:
            return known.caller
        payload = self._signed(text)
        caller = payload if isinstance(payload, TokenFault) else self._judge(payload, self._clock.wall())
        if isinstance(caller, Caller):
            until = min(now + REMEMBERED_SECONDS, (caller.expires_us or 0) / 1_000_000)
            self._remembered.put(seen, _Remembered(caller, until))
        return caller

    def _signed(self, text: str) -> bytes | TokenFault:
        """The payload of a token with a good signature."""
        header = _header(text)
        if isinstance(header, TokenFault):
            return header
        algorithm, kid = header
        key = self._keys.find(kid)
        if key is None:
            return TokenFault.UNKNOWN_KEY if len(self._keys) else TokenFault.NO_KEYS
        if algorithm not in key.algorithms:
            return TokenFault.ALGORITHM
        try:
            verified = jws.deserialize_compact(text, key.key, registry=_REGISTRY)
        except (JoseError, ValueError, TypeError):
            return TokenFault.SIGNATURE
        return verified.payload if verified.headers().get("alg") == algorithm else TokenFault.ALGORITHM

    def _judge(self, payload: bytes, now: float) -> Caller | TokenFault:
        try:
            claims = orjson.loads(payload)
        except ValueError:
            return TokenFault.MALFORMED
        if not isinstance(claims, dict):
            return TokenFault.MALFORMED
        if claims.get("iss") != self._rules.issuer:
            return TokenFault.ISSUER
        audience = claims.get("aud")
        if self._rules.audience not in (audience if isinstance(audience, list) else [audience]):
            return TokenFault.AUDIENCE
        times = _times(claims, now)
        return times if isinstance(times, TokenFault) else self._caller(claims, *times)

    def _caller(self, claims: Mapping[str, object], issued: float, expires: float) -> Caller | TokenFault:
        subject = claims.get("sub")
        groups = _groups(claims.get(self._rules.groups_claim, []))
        tenant_id = claims.get(self._rules.tenant_claim) if self._rules.tenant_claim else None
        if not _is_name(subject) or groups is None:
            return TokenFault.CLAIMS
        if self._rules.tenant_claim and not _is_name(tenant_id):
            return TokenFault.CLAIMS
        return Caller.of_token(
            self._rules.issuer,
            subject,
            groups=groups,
            tenant_id=tenant_id if _is_name(tenant_id) else None,
            issued_us=int(issued * 1_000_000),
            expires_us=int((expires + LEEWAY_SECONDS) * 1_000_000),
        )


def key_id_of(text: str) -> str | None:
    """The id of the key by which a token says that it is signed; None where it says none, or is no token."""
    header = _header(text)
    return None if isinstance(header, TokenFault) else header[1]


def _header(text: str) -> tuple[str, str] | TokenFault:
    """Algorithm and key id, of a token that says nothing which would have to be obeyed."""
    if len(text) > MAX_LENGTH or not text.isascii() or text.count(".") != 2:  # noqa: PLR2004 - the dots of a JWS
        return TokenFault.MALFORMED
    try:
        header = orjson.loads(urlsafe_b64decode(text.partition(".")[0] + "=="))
    except ValueError:
        return TokenFault.MALFORMED
    if not isinstance(header, dict) or not all(isinstance(value, str) for value in header.values()):
        return TokenFault.MALFORMED
    if _REFUSED & header.keys() or header.get("typ", "").lower() not in _TYPES:
        return TokenFault.MALFORMED
    if header.get("alg") not in ALGORITHMS:
        return TokenFault.ALGORITHM
    return (header["alg"], header["kid"]) if header.get("kid") else TokenFault.UNKNOWN_KEY


def _times(claims: Mapping[str, object], now: float) -> tuple[float, float] | TokenFault:
    """The instants at which it was issued (0 when it does not say) and expires, as seconds since 1970."""
    expires, issued, begins = claims.get("exp"), claims.get("iat", 0), claims.get("nbf", 0)
    if not (_is_instant(expires) and _is_instant(issued) and _is_instant(begins)):
        return TokenFault.CLAIMS
    if expires + LEEWAY_SECONDS <= now:
        return TokenFault.EXPIRED
    if max(issued, begins) > now + LEEWAY_SECONDS:
        return TokenFault.NOT_YET
    if expires - (issued or now) > LIFE_SECONDS + (0 if issued else LEEWAY_SECONDS):
        return TokenFault.LIFE
    return issued, expires


def _is_instant(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LAST_SECOND


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable()


def _groups(value: object) -> list[str] | None:
    """All groups; None when there is something else among them, or too many: to leave out some could drop a denial."""
    names = value if isinstance(value, list) else [value]
    found = [name for name in names if _is_name(name)]
    return found if len(found) == len(names) <= MAX_GROUPS else None
