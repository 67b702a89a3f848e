"""HTTP calls of an OIDC issuer: nothing is followed elsewhere, and no answer is read without a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote_plus

import aiohttp

from app.access.login.key_set import MAX_BYTES
from app.core.errors import InvalidInputError

OK: Final = 200


@asynccontextmanager
async def calling() -> AsyncIterator[aiohttp.ClientSession]:
    """Make calls of one occasion; ConnectionError where there is no answer."""
    try:
        async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as session:
            yield session
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error) or type(error).__name__) from None


async def get(session: aiohttp.ClientSession, url: str) -> bytes:
    """Read a resource; InvalidInputError when it is too long, or is not there."""
    async with session.get(url, allow_redirects=False) as response:
        if response.status != OK:
            raise InvalidInputError("issuer", f"answers {response.status}")
        return await _body_of(response)


async def post(url: str, form: Mapping[str, str], client: tuple[str, str] | None) -> tuple[int, bytes]:
    """Send a form and return status and body; InvalidInputError when it is too long, ConnectionError.

    `client` is a name and its secret, for HTTP's basic authentication as RFC 6749, section 2.3.1, wants it.
    """
    known = {} if client is None else {"Authorization": aiohttp.encode_basic_auth(*map(quote_plus, client))}
    async with calling() as session, session.post(url, data=form, headers=known, allow_redirects=False) as response:
        return response.status, await _body_of(response)


async def _body_of(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise InvalidInputError("issuer", f"answers with more than {MAX_BYTES} bytes")
    return bytes(body)
