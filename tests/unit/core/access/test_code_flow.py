"""Logins at an issuer, as text: RFC 7636, RFC 6749 and RFC 9207."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from app.core.access.code_flow import (
    CALLBACK,
    MOST_TOKEN_CHARACTERS,
    IssuerClient,
    LoginFault,
    PendingLogin,
    authorization_url,
    code_of,
    token_of,
    token_request,
)

CLIENT = IssuerClient("https://login.example/realms/fleet", "console", f"https://homing.example/console/{CALLBACK}")
# The verifier of RFC 7636, appendix B, and its challenge.
LOGIN = PendingLogin("s" * 43, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_browser_goes_with_the_challenge_and_never_with_the_verifier() -> None:
    url = authorization_url("https://login.example/auth", CLIENT, LOGIN)
    asked = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
    assert asked == {
        "response_type": "code",
        "client_id": "console",
        "redirect_uri": "https://homing.example/console/session/oidc/callback",
        "scope": "openid",
        "state": LOGIN.state,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    assert LOGIN.verifier not in url
    other = authorization_url("https://login.example/auth", replace(CLIENT, scope="openid api://x/y"), LOGIN)
    assert parse_qs(urlsplit(other).query)["scope"] == ["openid api://x/y"]
    assert authorization_url("https://login.example/auth?p=x", CLIENT, LOGIN).startswith(
        "https://login.example/auth?p=x&response_type=code"
    )


def test_a_login_is_kept_by_the_browser_as_it_is() -> None:
    login = PendingLogin.of_bytes(bytes(32), bytes(range(32)))
    assert (len(login.state), len(login.verifier)) == (43, 43)
    assert PendingLogin.of_text(login.to_text()) == login
    assert [PendingLogin.of_text(one) for one in ("", "x", ".", "x.", ".x")] == [None] * 5


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"state": LOGIN.state, "code": "c"}, "c"),
        ({"state": LOGIN.state, "code": "c", "iss": CLIENT.issuer}, "c"),
        ({"state": LOGIN.state, "code": "c", "iss": "https://other.example"}, LoginFault.DENIED),
        ({"state": LOGIN.state, "error": "access_denied"}, LoginFault.DENIED),
        ({"state": LOGIN.state, "error": "x", "code": "c"}, LoginFault.DENIED),
        ({"state": LOGIN.state}, LoginFault.DENIED),
        ({"state": LOGIN.state, "code": "c" * 2049}, LoginFault.DENIED),
        ({"state": "t" * 43, "code": "c"}, LoginFault.STALE),
        ({"code": "c"}, LoginFault.STALE),
    ],
)
def test_a_code_counts_where_it_was_asked_for(query: dict[str, str], expected: str | LoginFault) -> None:
    assert code_of(query, CLIENT, LOGIN) == expected


def test_the_token_is_asked_for_with_the_verifier() -> None:
    assert token_request(CLIENT, LOGIN, "c") == {
        "grant_type": "authorization_code",
        "code": "c",
        "redirect_uri": CLIENT.redirect_url,
        "client_id": "console",
        "code_verifier": LOGIN.verifier,
    }


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"access_token": "a.b-_.c", "token_type": "bearer"}, "a.b-_.c"),
        ({"access_token": "a.b.c", "token_type": "DPoP"}, LoginFault.AWAY),
        ({"access_token": "a.b.c"}, LoginFault.AWAY),
        ({"token_type": "Bearer"}, LoginFault.REFUSED),
        ({"access_token": "opaque", "token_type": "Bearer"}, LoginFault.REFUSED),
        ({"access_token": "a.b.c; Domain=evil", "token_type": "Bearer"}, LoginFault.REFUSED),
        ({"access_token": "a.b.c\r\nX: y", "token_type": "Bearer"}, LoginFault.REFUSED),
        ({"access_token": 7, "token_type": "Bearer"}, LoginFault.REFUSED),
        ({"access_token": f"a.{'b' * MOST_TOKEN_CHARACTERS}.c", "token_type": "Bearer"}, LoginFault.LARGE),
        ([], LoginFault.AWAY),
    ],
)
def test_a_reply_gives_a_token_that_a_cookie_can_hold(reply: object, expected: str | LoginFault) -> None:
    assert token_of(json.dumps(reply).encode()) == expected
    assert token_of(b"{") == LoginFault.AWAY
