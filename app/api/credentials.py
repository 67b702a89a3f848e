"""The credential of a request: `Authorization`, or the session of a console in a browser.

A session is a cookie that holds the key of a login. Browsers add cookies also to what pages of strangers send, so it
counts only together with a header that no such page can send: a browser asks first whether it may, and nobody says yes
(docs/adr/0139-a-session-is-a-login-in-a-cookie.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from app.access.ports import Access
from app.core.access.code_flow import PendingLogin

Headers = Mapping[bytes, bytes]
Header = tuple[bytes, bytes]

_SCHEME: Final = b"Bearer "
_HEADER: Final = b"homing-request"
_CONSOLE: Final = b"console"
_SAFE: Final = b"__Host-"
"""A cookie of this name is one that only a page of this host can set, and by TLS alone."""
_PENDING: Final = b"login-"
"""A login that has begun has this in front of the name of its session, as it is none yet."""
_STRICT: Final = b"SameSite=Strict"
_LAX: Final = b"SameSite=Lax"
"""A cookie with this attribute comes along when an issuer sends the browser back."""
_ENDED: Final = b"Max-Age=0; "
_DIGITS: Final = 8
_HTTPS: Final = b"https://"


def credential_of(headers: Headers, access: Access) -> bytes | None:
    """Return the text of `Authorization`, or the one that the session would send there; UnavailableError."""
    shown = headers.get(b"authorization")
    if shown is not None or not is_of_console(headers):
        return shown
    return session_of(headers, access)


def session_of(headers: Headers, access: Access) -> bytes | None:
    """The session of the request as a value of `Authorization`; None if there is none that counts."""
    secret = access.secret if b"cookie" in headers else None
    if secret is None or not is_of_console(headers):
        return None
    name = _name_of(secret)
    for wanted in (_SAFE + name, name):
        found = _values(headers, wanted)
        if found:
            return _SCHEME + found[0] if len(found) == 1 else None  # somebody has set another one beside ours
    return None


def is_of_console(headers: Headers) -> bool:
    """True if the console has sent the request, or somebody to whom browsers' rules mean nothing."""
    return headers.get(_HEADER) == _CONSOLE


def is_secure(headers: Headers) -> bool:
    """True if the browser speaks TLS, perhaps to a proxy."""
    return headers.get(b"origin", b"").lower().startswith(_HTTPS)


def session_cookie(key: str, secret: str, *, secure: bool) -> Header:
    """The header that gives a browser this key, until it is closed."""
    return _cookie(_safe(_name_of(secret), secure=secure), key, _STRICT, secure=secure)


def ended_cookies(headers: Headers, secret: str) -> list[Header]:
    """The headers that take the key away again."""
    name, secure = _name_of(secret), is_secure(headers)
    return [_cookie(one, "", _ENDED + _STRICT, secure=secure) for one in sorted({_safe(name, secure=secure), name})]


def pending_cookie(login: PendingLogin, secret: str, *, secure: bool) -> Header:
    """The header that keeps in a browser what somebody has begun who is at an issuer now, for ten minutes."""
    return _cookie(_pending_name(secret, secure=secure), login.to_text(), b"Max-Age=600; " + _LAX, secure=secure)


def ended_pending_cookie(secret: str, *, secure: bool) -> Header:
    """The header that takes it away again."""
    return _cookie(_pending_name(secret, secure=secure), "", _ENDED + _LAX, secure=secure)


def pending_of(headers: Headers, secret: str, *, secure: bool) -> PendingLogin | None:
    """The login that this browser has begun, if there is one and no other beside it."""
    found = _values(headers, _pending_name(secret, secure=secure))
    return PendingLogin.of_text(found[0].decode("latin-1")) if len(found) == 1 else None


def _cookie(name: bytes, value: str, attributes: bytes, *, secure: bool) -> Header:
    own = attributes + (b"; Secure" if secure else b"")
    return b"set-cookie", b"%b=%b; Path=/; HttpOnly; %b" % (name, value.encode(), own)


def _pending_name(secret: str, *, secure: bool) -> bytes:
    return _safe(_PENDING + _name_of(secret), secure=secure)


def _safe(name: bytes, *, secure: bool) -> bytes:
    return _SAFE + name if secure else name


def _values(headers: Headers, name: bytes) -> list[bytes]:
    cookies = (one.strip().partition(b"=") for one in headers.get(b"cookie", b"").split(b";"))
    return [value for key, _, value in cookies if key == name]


def _name_of(secret: str) -> bytes:
    """Cookies know no ports: two clusters on one host must not log each other's people out."""
    return b"homing-" + sha256(b"session of " + secret.encode()).hexdigest()[:_DIGITS].encode()
