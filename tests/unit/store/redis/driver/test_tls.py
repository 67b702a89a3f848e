"""TLS to Redis: what connections share, and what makes them read files again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from app.store.redis.driver.tls import TlsConnection, parsed
from tests.certificates import CertificateFiles, make_certificate


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return make_certificate(tmp_path)


@pytest.fixture
async def port(files: CertificateFiles) -> AsyncIterator[int]:
    """The port of a server with this certificate, which says nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connected(port: int, authority: Path, more: str = "") -> TlsConnection:
    """A connection that stood."""
    arguments = parsed(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}{more}")
    connection = arguments.pop("connection_class")(**arguments, protocol=2, driver_info=None)
    assert isinstance(connection, TlsConnection)
    await connection.connect()  # type: ignore[no-untyped-call]
    await connection.disconnect(nowait=True)
    return connection


async def test_connections_with_the_same_parameters_share_their_context(port: int, files: CertificateFiles) -> None:
    first, second = await connected(port, files.authority), await connected(port, files.authority)
    assert first.ssl_context.get() is second.ssl_context.get()
    careless = await connected(port, files.authority, "&ssl_check_hostname=false")
    assert careless.ssl_context.get() is not first.ssl_context.get()


async def test_a_renewed_file_is_read_again(port: int, files: CertificateFiles, tmp_path: Path) -> None:
    first = await connected(port, files.authority)
    renewed = make_certificate(tmp_path, "renewed")
    both = files.authority.read_bytes() + renewed.authority.read_bytes()
    renewed.authority.write_bytes(both)
    renewed.authority.replace(files.authority)
    second = await connected(port, files.authority)
    assert second.ssl_context.get() is not first.ssl_context.get()
    assert len(second.ssl_context.get().get_ca_certs()) == len(first.ssl_context.get().get_ca_certs()) + 1


async def test_who_is_not_vouched_for_is_refused_whatever_others_trust(
    port: int, files: CertificateFiles, tmp_path: Path
) -> None:
    await connected(port, files.authority)
    with pytest.raises(RedisConnectionError, match="certificate"):
        await connected(port, make_certificate(tmp_path, "stranger").authority)
    with pytest.raises(RedisConnectionError, match=r"nowhere.pem cannot be read: No such file"):
        await connected(port, tmp_path / "nowhere.pem")
