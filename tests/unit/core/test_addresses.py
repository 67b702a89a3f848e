from __future__ import annotations

import pytest

from app.core.addresses import shown_address, split_address
from app.core.redis_address import check_redis_url


def test_the_parts_of_an_address() -> None:
    parts = split_address("redis://user:p%2Fw@host:6380/1")
    assert (parts.scheme, parts.hostname, parts.port, parts.password) == ("redis", "host", 6380, "p%2Fw")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:CANARY/x@host:6379/0",
        "redis://user:CANARY#x@host:6379/0",
        "redis://user:CANARY?x@host:6379/0",
        "mqtt://user:CANARY@[::1",
        "mqtt://host:CANARY",
    ],
)
def test_S7_what_is_wrong_with_one_is_said_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"port number|is no URL") as caught:
        split_address(url)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host/",
        "redis://user:pass@host:6380/15",
        "rediss://host/0?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/etc/node.pem&ssl_keyfile=/etc/node.key",
    ],
)
def test_a_redis_is_named_by_host_and_number(url: str) -> None:
    check_redis_url(url)


@pytest.mark.parametrize("path", ["abc", "1x", "0/1", "-1", "²"])
def test_a_database_is_a_number(path: str) -> None:
    with pytest.raises(ValueError, match="has a path that is no database number; allowed: redis://host:port/0"):
        check_redis_url(f"redis://host/{path}")


@pytest.mark.parametrize(
    "parameter", ["decode_responses=True", "socket_timeout=1", "protocol=3", "db=1", "max_connections=1", "x", "a-b=1"]
)
def test_what_would_change_how_nodes_speak_is_refused(parameter: str) -> None:
    with pytest.raises(ValueError, match=r"behind its '\?', which is not allowed; allowed: ssl_ca_certs, ") as caught:
        check_redis_url(f"redis://user:CANARY@host/0?{parameter}")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("redis://user:CANARY@host:6380/15?ssl_password=CANARY", "redis://host:6380/15"),
        ("mqtts://CANARY:CANARY@[::1]:8883", "mqtts://[::1]:8883"),
    ],
)
def test_an_address_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert shown_address(url) == shown
