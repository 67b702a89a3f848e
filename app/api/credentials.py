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

Headers = Mapping[bytes, bytes]

_SCHEME: Final = b"Bearer "
_HEADER: Final = b"homing-request"
_CONSOLE: Final = b"console"
_SAFE: Final = b"__Host-"
"""A cookie of this name is one that only a page of this host can set, and by TLS alone."""
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
    cookies = headers.get(b"cookie")
    secret = None if cookies is None else access.secret
    if cookies is None or secret is None or not is_of_console(headers):
        return None
    name = _name_of(secret)
    for wanted in (_SAFE + name, name):
        found = [
            value for one in cookies.split(b";") for key, _, value in [one.strip().partition(b"=")] if key == wanted
        ]
        if found:
            return _SCHEME + found[0] if len(found) == 1 else None  # somebody has set another one beside ours
    return None


def is_of_console(headers: Headers) -> bool:
    """True if the console has sent the request, or somebody to whom browsers' rules mean nothing."""
    return headers.get(_HEADER) == _CONSOLE


def session_cookie(key: str, headers: Headers, secret: str) -> tuple[bytes, bytes]:
    """The header that gives a browser this key, until it is closed."""
    return b"set-cookie", b"%b=%b; %b" % (_own_name(headers, secret), key.encode(), _attributes(headers))


def ended_cookies(headers: Headers, secret: str) -> list[tuple[bytes, bytes]]:
    """The headers that take the key away again."""
    names = {_own_name(headers, secret), _name_of(secret)}
    return [(b"set-cookie", b"%b=; Max-Age=0; %b" % (name, _attributes(headers))) for name in sorted(names)]


def _own_name(headers: Headers, secret: str) -> bytes:
    return _SAFE + _name_of(secret) if _is_secure(headers) else _name_of(secret)


def _name_of(secret: str) -> bytes:
    """Cookies know no ports: two clusters on one host must not log each other's people out."""
    return b"homing-" + sha256(b"session of " + secret.encode()).hexdigest()[:_DIGITS].encode()


def _attributes(headers: Headers) -> bytes:
    secure = b"; Secure" if _is_secure(headers) else b""
    return b"Path=/; HttpOnly; SameSite=Strict" + secure


def _is_secure(headers: Headers) -> bool:
    """True if the browser speaks TLS, perhaps to a proxy."""
    return headers.get(b"origin", b"").lower().startswith(_HTTPS)
