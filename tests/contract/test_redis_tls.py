"""TLS to all members of a Redis Cluster, and to Sentinels and the primary that they name, as a user with few rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.core.identifiers import partition_of
from app.runtime.system import SystemClock
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.doctor import inspect
from tests.certificates import CertificateFiles, make_certificate
from tests.contract.store_backends import registration
from tests.contract.test_cluster import Heard, info, redis_member
from tests.contract.test_sharded import slot_of_partition, told
from tests.guarded import Guarded, secretly_guarded
from tests.services import NODE_PASSWORD, NODE_USER, SentinelProcess, require_programs
from tests.sharded import sharded
from tests.stores import redis_store
from tests.waiting import PATIENCE, eventually


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    require_programs()


@pytest.fixture
def certificate(tmp_path: Path) -> CertificateFiles:
    return make_certificate(tmp_path)


@pytest.fixture
def secret(certificate: CertificateFiles) -> Iterator[Guarded]:
    with secretly_guarded(certificate) as running:
        yield running


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStateStore]:
    store = redis_store(url, budget=timedelta(seconds=5))
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def registers(store: RedisStateStore, device: str) -> bool:
    with suppress(StoreUnavailableError):
        command = registration(device)
        await store.register(command)
        [found] = await store.get([command.command_id])
        return found is not None
    return False


async def test_a_cluster_over_tls(certificate: CertificateFiles, tmp_path: Path) -> None:
    stranger = make_certificate(tmp_path, "stranger")
    with sharded(certificate=certificate) as cluster:
        url = cluster.tls_url(f"ssl_ca_certs={certificate.authority}")
        async with opened(url) as store:
            for number in range(20):  # all primaries have some of these
                assert await registers(store, f"device-{number}")
            # Who is sent elsewhere goes there with TLS as well.
            slot = slot_of_partition(partition_of("device-1"))
            source = await asyncio.to_thread(cluster.owner, slot)
            target = next(one for one in cluster.members if one is not source)
            await asyncio.to_thread(cluster.move, slot, target)
            assert await registers(store, "device-1")
        heard = Heard()
        member, other = redis_member(url, heard), redis_member(url, Heard())
        try:
            async with asyncio.timeout(PATIENCE):
                await member.charter()
                await member.join(info("n1"))
                await eventually(lambda: told(other, heard))
        finally:
            await member.leave()
        assert [one.refusals() for one in cluster.members] == ["", "", ""]
        facts = await asyncio.to_thread(inspect, url, SystemClock().monotonic, "r1")
        assert facts.cluster is not None
        assert [one.place for one in facts.cluster.primaries] == [
            f"127.0.0.1:{one.peer_port}" for one in cluster.members
        ]
        assert [one.missing_rights for one in facts.cluster.primaries] == [[], [], []]
        assert facts.cluster.bus_works
        with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
            await redis_store(cluster.tls_url(f"ssl_ca_certs={stranger.authority}")).start()


async def test_a_primary_that_sentinels_name_over_tls(secret: Guarded, certificate: CertificateFiles) -> None:
    before, after = secret.servers
    places = ",".join(f"127.0.0.1:{one.peer_port}" for one in secret.guards)
    login = f"{NODE_USER}:{NODE_PASSWORD}"
    url = f"rediss+sentinel://{login}@{places}/{SentinelProcess.service}/0?ssl_ca_certs={certificate.authority}"
    async with opened(url) as store:
        assert await registers(store, "device")
        assert before.refusals() == ""
        facts = await asyncio.to_thread(inspect, url, SystemClock().monotonic, "r1")
        assert facts.guards is not None
        assert (facts.guards.silent, facts.guards.known, facts.replicas) == ((), 3, 1)
        assert facts.missing_rights == []
        await asyncio.to_thread(before.kill)
        await eventually(lambda: secret.switched(before))
        await eventually(lambda: registers(store, "device"))
        assert after.refusals() == ""
