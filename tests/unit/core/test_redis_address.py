"""URLs of a Redis: what they name, and what is said of those that name nothing."""

from __future__ import annotations

import pytest

from app.core.addresses import EngineKind, EventsKind, check_store_url, engine_kind, events_kind, shown_address
from app.core.redis_address import RedisKind, check_redis_url, parse_redis_url


def test_sentinels_are_named_with_the_service_and_the_login_is_that_of_redis() -> None:
    address = parse_redis_url(
        "rediss+sentinel://user:CANARY%2F@s1:26380,s2,[::1]:26381/my-redis/3?ssl_ca_certs=/ca.pem"
    )
    assert address.kind is RedisKind.SENTINEL
    assert address.seeds == (("s1", 26380), ("s2", 26379), ("::1", 26381))
    assert address.service == "my-redis"
    assert address.url_of(("10.0.0.1", 6379)) == "rediss://user:CANARY%2F@10.0.0.1:6379/3?ssl_ca_certs=/ca.pem"
    assert address.url_of(("::2", 6379)) == "rediss://user:CANARY%2F@[::2]:6379/3?ssl_ca_certs=/ca.pem"
    assert address.sentinel_url(("s2", 26379)) == "rediss://s2:26379?ssl_ca_certs=/ca.pem"
    assert "CANARY" not in repr(address)


@pytest.mark.parametrize("url", ["redis+sentinel://s1/a", "redis+sentinel://s1,s2/a/0", "rediss+sentinel://s1/a/"])
def test_sentinels_are_for_the_store_and_for_events(url: str) -> None:
    check_store_url(url)
    assert engine_kind(url) is EngineKind.REDIS
    assert events_kind(url) is EventsKind.REDIS


@pytest.mark.parametrize("scheme", ["redis+cluster", "rediss+cluster"])
def test_a_redis_cluster_is_named_by_some_of_its_members(scheme: str) -> None:
    url = f"{scheme}://user:CANARY@h1:7000,h2?ssl_ca_certs=/ca.pem"
    address = parse_redis_url(url)
    assert (address.kind, address.seeds) == (RedisKind.CLUSTER, (("h1", 7000), ("h2", 6379)))
    one = scheme.removesuffix("+cluster")
    assert address.url_of(("h9", 7009)) == f"{one}://user:CANARY@h9:7009?ssl_ca_certs=/ca.pem"
    check_store_url(url)
    assert engine_kind(url) is EngineKind.REDIS
    assert events_kind(url) is EventsKind.REDIS
    assert "CANARY" not in shown_address(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://a,CANARY", "names 2 hosts; redis:// is one server, redis\\+sentinel://host,host/service is"),
        ("redis+sentinel://s1", "names no service that Sentinels would know"),
        ("redis+sentinel://s1//0", "names no service that Sentinels would know"),
        ("redis+sentinel://s1/a%20b", "names no service that Sentinels would know"),
        ("redis+sentinel://s1/a/b", "has a path that is no database number; allowed: redis"),
        ("redis+sentinel://s1:CANARY/a", "has no port number after its host"),
        ("redis+sentinel://u:CANARY/x@s1,s2/a", "names no service|has no port number|no database number"),
        (f"redis+sentinel://{','.join('s' * 17)}/a", "has 17 hosts; allowed are 16"),
        ("redis+sentinel://s1/a?socket_timeout=1", "has 'socket_timeout' behind its '\\?', which is not allowed"),
        ("redis+cluster://h1/1", "a Redis Cluster has the database 0 only; allowed: no path at all"),
        ("postgres://h", "scheme 'postgres' is unknown; allowed: redis://, rediss://, redis\\+sentinel://"),
    ],
)
def test_what_is_wrong_is_said_without_repeating_a_password(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        check_redis_url(url)
    assert "CANARY" not in str(refused.value)


def test_the_address_of_sentinels_is_shown_without_what_is_secret() -> None:
    shown = shown_address("redis+sentinel://CANARY:CANARY@s1,s2:26380/a/0?ssl_password=CANARY")
    assert shown == "redis+sentinel://s1,s2:26380/a/0"
