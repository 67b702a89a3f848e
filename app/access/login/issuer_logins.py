"""Logs people in at an OIDC issuer, for the console: the issuer asks who they are, and gives a token in return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from app.access.login.issuer_calls import OK, post
from app.access.login.jwks import IssuerKeys
from app.access.login.tokens import key_id_of
from app.core.access.code_flow import (
    SECRET_BYTES,
    IssuerClient,
    LoginFault,
    PendingLogin,
    authorization_url,
    code_of,
    token_of,
    token_request,
)
from app.core.errors import InvalidInputError
from app.runtime.telemetry import Counters

MOST_EXCHANGES: Final = 8
"""Codes that are exchanged for tokens at a time; who comes then is told to try again."""
EXCHANGE_SECONDS: Final = 5.0
NO_CODE: Final = 400
"""The status for a code that is none, or no more (RFC 6749, section 5.2)."""


class IssuerLogins:
    """Begins and finishes logins; nothing is kept here meanwhile. Counts `login.issuer_accepted` and the faults."""

    def __init__(
        self,
        client: IssuerClient,
        secret: str,
        keys: IssuerKeys,
        random_bytes: Callable[[int], bytes],
        counters: Counters,
    ) -> None:
        """`secret` is the client's at the issuer; empty where it has none. `keys` know where people log in."""
        self.client: Final = client
        self._secret = secret
        self._keys = keys
        self._random_bytes = random_bytes
        self._counters = counters
        self._exchanging = 0

    def begin(self) -> tuple[str, PendingLogin] | LoginFault:
        """Return where the browser goes, and what it keeps until it comes back."""
        endpoints = self._keys.endpoints
        if endpoints is None:
            return self.failed(LoginFault.AWAY)
        login = PendingLogin.of_bytes(self._random_bytes(SECRET_BYTES), self._random_bytes(SECRET_BYTES))
        return authorization_url(endpoints.authorization, self.client, login), login

    async def finish(self, query: Mapping[str, str], login: PendingLogin | None) -> str | LoginFault:
        """Return the token that the issuer gives for what the browser brings back. Nobody has checked it."""
        if login is None:
            return self.failed(LoginFault.STALE)
        code = code_of(query, self.client, login)
        if isinstance(code, LoginFault):
            return self.failed(code)
        endpoints = self._keys.endpoints
        if endpoints is None or self._exchanging >= MOST_EXCHANGES:
            return self.failed(LoginFault.AWAY)
        self._exchanging += 1
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                token = await self._exchange(endpoints.token, token_request(self.client, login, code))
        except (ConnectionError, TimeoutError, InvalidInputError):
            token = LoginFault.AWAY
        finally:
            self._exchanging -= 1
        return self.failed(token) if isinstance(token, LoginFault) else token

    def failed(self, fault: LoginFault) -> LoginFault:
        """Count a login that has come to nothing."""
        self._counters[f"login.issuer_{fault}"] += 1
        return fault

    def accepted(self) -> None:
        """Count one whose token counts."""
        self._counters["login.issuer_accepted"] += 1

    async def _exchange(self, url: str, form: Mapping[str, str]) -> str | LoginFault:
        status, body = await post(url, form, (self.client.client_id, self._secret) if self._secret else None)
        if status != OK:
            return LoginFault.DENIED if status == NO_CODE else LoginFault.AWAY
        token = token_of(body)
        kid = None if isinstance(token, LoginFault) else key_id_of(token)
        if kid is not None:  # the issuer may sign with a new key since a moment ago
            await self._keys.look_for(kid)
        return token
