"""Fetches the keys of an OIDC issuer, and keeps the last good ones while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import orjson
import structlog

from app.access.login.issuer_calls import calling, get
from app.access.login.key_set import KeySet, SigningKey, parse_key_set
from app.core.access.code_flow import IssuerEndpoints
from app.core.clock import Clock
from app.core.errors import InvalidInputError
from app.runtime.telemetry import Counters

REFRESH_SECONDS: Final = 3_600.0
RETRY_SECONDS: Final = 60.0
EXTRA_SECONDS: Final = 10.0
"""The time between two fetches that tokens with unknown keys cause."""
KEPT_SECONDS: Final = 24 * 3_600.0
_DISCOVERY: Final = "/.well-known/openid-configuration"  # OpenID Connect Discovery 1.0, section 4


class IssuerKeys:
    """The keys of `issuer`, refreshed by `run`. Nobody waits for them."""

    def __init__(self, issuer: str, clock: Clock, counters: Counters, *, fetch_seconds: float = 5.0) -> None:
        self._issuer = issuer
        self._clock = clock
        self._counters = counters
        self._fetch_seconds = fetch_seconds
        self.endpoints: IssuerEndpoints | None = None
        """The URLs for those who log in; None where the issuer has not told them yet, or offers no login."""
        self._keys: KeySet = {}
        self._good_at = -KEPT_SECONDS
        self._begun_at = -EXTRA_SECONDS
        self._fetching: asyncio.Task[bool] | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Fetch now and every hour, and every minute after a failure, until it is cancelled."""
        while True:
            good = await asyncio.shield(self._fetch())
            await asyncio.sleep(REFRESH_SECONDS if good else RETRY_SECONDS)

    async def close(self) -> None:
        """End a fetch that is on its way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    def find(self, kid: str) -> SigningKey | None:
        """The key of this id, of the last good set. An unknown one begins a fetch, at most every 10 s."""
        key = self._keys.get(kid) if self._is_fresh() else None
        if key is None and self._clock.monotonic() - self._begun_at >= EXTRA_SECONDS:
            _ = self._fetch()
        return key

    async def look_for(self, kid: str) -> None:
        """Return once this key is known, or the issuer has been asked for it, as `find` asks."""
        if self.find(kid) is None and self._fetching is not None:
            await asyncio.wait({self._fetching})

    def __len__(self) -> int:
        return len(self._keys) if self._is_fresh() else 0

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._good_at < KEPT_SECONDS

    def _fetch(self) -> asyncio.Task[bool]:
        """The fetch that is under way, or a new one."""
        if self._fetching is None or self._fetching.done():
            self._begun_at = self._clock.monotonic()
            self._fetching = asyncio.create_task(self._refresh(), name="issuer keys")
        return self._fetching

    async def _refresh(self) -> bool:
        try:
            async with asyncio.timeout(self._fetch_seconds):
                keys = await self._load()
        except (ConnectionError, TimeoutError, InvalidInputError, ValueError) as error:
            self._counters["oidc.failed"] += 1
            self._log.warning("issuer_keys_not_fetched", issuer=self._issuer, reason=str(error) or type(error).__name__)
            return False
        self._keys, self._good_at = keys, self._clock.monotonic()
        self._counters["oidc.fetched"] += 1
        return True

    async def _load(self) -> KeySet:
        async with calling() as session:
            described = orjson.loads(await get(session, self._issuer.rstrip("/") + _DISCOVERY))
            found = described if isinstance(described, Mapping) else {}
            if found.get("issuer") != self._issuer:
                raise InvalidInputError("issuer", "says that it is another one")
            keys = parse_key_set(await get(session, _url(found, "jwks_uri", self._issuer)))
            self.endpoints = _endpoints(found, self._issuer)
            return keys


def _endpoints(described: Mapping[str, object], issuer: str) -> IssuerEndpoints | None:
    try:
        return IssuerEndpoints(
            _url(described, "authorization_endpoint", issuer), _url(described, "token_endpoint", issuer)
        )
    except InvalidInputError:
        return None


def _url(described: Mapping[str, object], name: str, issuer: str) -> str:
    """One of the URLs that the issuer says of itself; raises InvalidInputError."""
    url = described.get(name)
    allowed = {"https", urlsplit(issuer).scheme}
    if not isinstance(url, str) or urlsplit(url).scheme not in allowed:
        raise InvalidInputError(name, f"is no URL of {' or '.join(sorted(allowed))}")
    return url
