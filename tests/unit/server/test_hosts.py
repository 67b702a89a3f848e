"""Under which names a node may be called, and by whose pages."""

from __future__ import annotations

import pytest

from app.core.addresses import is_loopback
from app.server.hosts import PASSED_ON, REMEMBERED, Hosts

LOOPBACK = Hosts((), loopback=True)
OPEN = Hosts((), loopback=False)
NAMED = Hosts(("homing.example.com", "Other.example"), loopback=False)
PROXIED = Hosts(("homing.example.com",), loopback=True)
ANY = Hosts(("*",), loopback=True)
DIRECT = Hosts(("*",), loopback=True, direct=True)


def verdict(hosts: Hosts, host: str | None, origin: str | None = None, target: str = "/", version: str = "1.1") -> str:
    given = [(b"host", host), (b"accept", "*/*"), (b"origin", origin)]
    headers = [(name, value.encode("latin-1")) for name, value in given if value is not None]
    refusal = hosts.refusal(target.encode(), headers, dict(headers), version)
    if hosts.is_plain(target.encode(), headers, dict(headers), version):
        assert refusal is None
        assert origin is None
    return "" if refusal is None else refusal[0].slug


@pytest.mark.parametrize("header", [*sorted(PASSED_ON), b"x-forwarded-port", b"x-forwarded-anything"])
def test_what_a_proxy_has_passed_on_is_refused_where_only_this_machine_may_call(header: bytes) -> None:
    headers = [(b"host", b"localhost"), (header, b"for=203.0.113.9")]
    for _ in range(2):  # the first one that is allowed makes its host known
        refusal = DIRECT.refusal(b"/", headers, dict(headers), "1.1")
        assert refusal is not None
        assert refusal[0].slug == "passed-on"
        assert not DIRECT.is_plain(b"/", headers, dict(headers), "1.1")
        assert verdict(DIRECT, "localhost") == ""
    assert ANY.refusal(b"/", headers, dict(headers), "1.1") is None


def test_http_1_0_and_another_sites_page_are_refused_where_only_this_machine_may_call() -> None:
    assert verdict(DIRECT, "localhost") == ""
    assert verdict(DIRECT, "localhost", version="1.0") == "passed-on"
    assert verdict(ANY, "localhost", version="1.0") == ""
    for site, slug in (
        (b"cross-site", "passed-on"),
        (b"Cross-Site ", "passed-on"),
        (b"same-origin", ""),
        (b"none", ""),
    ):
        headers = [(b"host", b"localhost"), (b"sec-fetch-site", site)]
        refusal = DIRECT.refusal(b"/", headers, dict(headers), "1.1")
        assert ("" if refusal is None else refusal[0].slug) == slug
        assert DIRECT.is_plain(b"/", headers, dict(headers), "1.1") == (refusal is None)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:8080", "a.localhost"],
)
@pytest.mark.parametrize("hosts", [LOOPBACK, OPEN, NAMED, PROXIED, ANY])
def test_the_loopback_is_always_ours(hosts: Hosts, host: str) -> None:
    assert verdict(hosts, host) == ""


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::1]evil"),
        *("", "\xff", "evil.example:80@127.0.0.1", "localhost,evil.example", "2130706433", "0x7f.1"),
    ],
)
def test_another_name_is_refused_on_the_loopback_and_where_names_are_listed(host: str) -> None:
    for hosts in (LOOPBACK, NAMED, PROXIED):
        assert verdict(hosts, host) == "host-not-allowed"
    for hosts in (OPEN, ANY):
        assert verdict(hosts, host) == ""


def test_addresses_are_taken_where_probes_use_them() -> None:
    for address in ("10.1.2.3:8080", "[2001:db8::1]:8080"):
        assert verdict(OPEN, address) == verdict(NAMED, address) == ""
        assert verdict(LOOPBACK, address) == "host-not-allowed"


def test_listed_names_are_taken_with_any_port_and_in_any_case() -> None:
    for host in ("homing.example.com", "HOMING.example.com:443", "homing.example.com."):
        assert verdict(NAMED, host) == verdict(PROXIED, host) == ""
    assert verdict(NAMED, "other.example") == ""
    assert verdict(NAMED, "sub.other.example") == "host-not-allowed"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://localhost:3000", "file://"])
def test_pages_of_another_origin_are_refused_everywhere(origin: str) -> None:
    for hosts in (LOOPBACK, OPEN, NAMED, PROXIED, ANY):
        assert verdict(hosts, "localhost:8080", origin) == "origin-not-allowed"


def test_pages_of_this_node_and_of_listed_hosts_are_served() -> None:
    assert verdict(LOOPBACK, "localhost:8080", "http://localhost:8080") == ""
    assert verdict(OPEN, "homing.internal", "https://homing.internal") == ""
    assert verdict(NAMED, "10.0.0.1", "https://homing.example.com") == ""


def test_a_rebound_name_is_refused_although_its_origin_matches() -> None:
    assert verdict(LOOPBACK, "evil.example:8080", "http://evil.example:8080") == "host-not-allowed"


def test_what_the_target_names_counts_instead_of_the_header() -> None:
    assert verdict(LOOPBACK, "localhost", target="http://evil.example/v1/nodes") == "host-not-allowed"
    assert verdict(LOOPBACK, "evil.example", target="http://localhost:8080/v1/nodes") == ""


def test_who_a_request_is_for_must_be_said_once() -> None:
    assert verdict(LOOPBACK, None) == verdict(OPEN, None) == "unreadable-request"
    assert verdict(LOOPBACK, None, version="1.0") == ""  # no browser leaves it out
    assert verdict(LOOPBACK, None, "http://evil.example", version="1.0") == "origin-not-allowed"
    for name in (b"host", b"origin"):
        headers = [(b"host", b"localhost"), (name, b"localhost"), (name, b"localhost")]
        refusal = LOOPBACK.refusal(b"/", headers, dict(headers), "1.1")
        assert refusal is not None
        assert refusal[0].slug == "unreadable-request"


def test_strangers_cannot_fill_the_memory_with_names() -> None:
    hosts = Hosts((), loopback=False)
    for number in range(REMEMBERED * 3):
        assert verdict(hosts, f"{number}.example") == ""
    assert len(hosts._known) <= REMEMBERED


def test_which_listeners_are_on_the_loopback() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")  # noqa: S104 - what is asked about
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("/run/homing.sock")
