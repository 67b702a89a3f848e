from __future__ import annotations

import pytest

from app.core.addresses import split_address


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
