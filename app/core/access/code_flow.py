"""Logging in at an OIDC issuer: what a node sends a browser with, and what it makes of the browser's return.

The authorization code flow (OpenID Connect Core 1.0, section 3.1) with PKCE (RFC 7636). All of it is text.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode, urlsplit

CALLBACK: Final = "session/oidc/callback"
"""The issuer sends people back to this path, below the address of the console."""
SECRET_BYTES: Final = 32
"""The length of state and verifier, which become 43 characters each (RFC 7636, section 4.1)."""
MOST_TOKEN_CHARACTERS: Final = 3_800
"""Browsers keep cookies of up to 4,096 bytes, with name and attributes."""
_MOST_CODE_CHARACTERS: Final = 2_048
_JWS: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2}")
"""The characters of a signed token (RFC 7515, section 7.1), all of which a cookie can have."""


class LoginFault(StrEnum):
    """The reason why nobody is logged in; the console has a sentence for each."""

    DENIED = auto()
    """The issuer says so."""
    STALE = auto()
    """The browser did not begin here, or too long ago."""
    AWAY = auto()
    """The issuer does not answer, or not with a token."""
    REFUSED = auto()
    """The token counts for nothing here."""
    LARGE = auto()
    """No cookie holds the token."""


@dataclass(frozen=True, slots=True)
class IssuerEndpoints:
    """The URLs of an issuer for those who log in (OpenID Connect Discovery 1.0, section 3)."""

    authorization: str
    token: str


@dataclass(frozen=True, slots=True)
class IssuerClient:
    """This installation, as its issuer knows it."""

    issuer: str
    client_id: str
    redirect_url: str
    scope: str = "openid"
    """The words of what is asked for, with a space between them."""

    @property
    def console_url(self) -> str:
        """The address of the console, with a slash at its end."""
        return self.redirect_url.removesuffix(CALLBACK)

    @property
    def host(self) -> str:
        """The name of the issuer's machine, for people who are to log in there."""
        return urlsplit(self.issuer).hostname or self.issuer


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login that has begun, as the browser keeps it meanwhile."""

    state: str
    verifier: str

    @classmethod
    def of_bytes(cls, state: bytes, verifier: bytes) -> PendingLogin:
        """Return the login of two secrets of SECRET_BYTES each."""
        return cls(_encoded(state), _encoded(verifier))

    @classmethod
    def of_text(cls, text: str) -> PendingLogin | None:
        """Return the login that `to_text` wrote; None if it is something else."""
        state, dot, verifier = text.partition(".")
        return cls(state, verifier) if dot and state and verifier else None

    def to_text(self) -> str:
        """The value of a cookie."""
        return f"{self.state}.{self.verifier}"


def authorization_url(endpoint: str, client: IssuerClient, login: PendingLogin) -> str:
    """Return where the browser goes to log in."""
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_url,
        "scope": client.scope,
        "state": login.state,
        "code_challenge": _encoded(sha256(login.verifier.encode()).digest()),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}"


def code_of(query: Mapping[str, str], client: IssuerClient, login: PendingLogin) -> str | LoginFault:
    """Return the code that the browser brings back.

    What another issuer has answered is not for us (RFC 9207).
    """
    if query.get("state") != login.state:
        return LoginFault.STALE
    if "error" in query or query.get("iss", client.issuer) != client.issuer:
        return LoginFault.DENIED
    code = query.get("code", "")
    return code if 0 < len(code) <= _MOST_CODE_CHARACTERS else LoginFault.DENIED


def token_request(client: IssuerClient, login: PendingLogin, code: str) -> dict[str, str]:
    """Return the form in which the token is asked for."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": client.redirect_url,
        "client_id": client.client_id,
        "code_verifier": login.verifier,
    }


def token_of(body: bytes) -> str | LoginFault:
    """Return the access token in the issuer's reply (RFC 6749, section 5.1)."""
    try:
        found = json.loads(body)
    except ValueError:
        return LoginFault.AWAY
    if not isinstance(found, dict) or str(found.get("token_type", "")).lower() != "bearer":
        return LoginFault.AWAY
    token = found.get("access_token")
    if not isinstance(token, str) or _JWS.fullmatch(token) is None:
        return LoginFault.REFUSED
    return token if len(token) <= MOST_TOKEN_CHARACTERS else LoginFault.LARGE


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
