"""Addresses to which a webhook may connect: none that only this machine or its network can reach.

Whoever may create a webhook would otherwise make nodes talk to metadata services and neighbours (server-side request
forgery, OWASP A10:2021).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from app.core.errors import InvalidInputError

Network = IPv4Network | IPv6Network

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""RFC 6052: the IPv4 address is in the last 32 bits."""
_REFUSED_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "64:ff9b:1::/48",  # RFC 8215: NAT64 of a network's own
        "100::/64",  # RFC 6666: discard
        "2001::/23",  # RFC 2928: protocol assignments, Teredo among them
        "2001:db8::/32",  # RFC 3849: documentation
        "3fff::/20",  # RFC 9637: documentation
        "5f00::/16",  # RFC 9602: segment routing
        "2002::/16",  # RFC 7526: 6to4, which embeds any IPv4 address
        "fec0::/10",  # RFC 3879: site-local
        "::/96",  # RFC 4291: IPv4-compatible
        "::ffff:0:0/96",  # RFC 4291: IPv4-mapped, which a resolver has no reason to give
        "::ffff:0:0:0/96",  # RFC 2765: IPv4-translated
        "100:0:0:1::/64",  # RFC 9780: dummy addresses
    )
)
"""The networks that `ipaddress.is_global` of Python 3.11 calls global, or that no receiver has."""
_REFUSED_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "192.88.99.0/24",  # RFC 7526: 6to4 relays
        "192.0.0.0/24",  # RFC 6890: protocol assignments
    )
)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
"""The last label of a host that is an address, and no name (the URL standard of WHATWG, 3.5)."""


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in CIDR notation; InvalidInputError names what is none."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise InvalidInputError("networks", f"{error}; allowed: CIDR notation, as 10.1.0.0/16") from None
    return tuple(found)


def refusal_of_host(host: str, allowed: Sequence[Network] = ()) -> str | None:
    """The reason why nobody ever connects to the host of a URL, where that can be told without asking a name server."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return None if any(refusal(one, allowed) is None for one in ("127.0.0.1", "::1")) else f"{name} is this machine"
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            return f"{host} is an address that not all programs read alike: write its four numbers"
        return None
    return refusal(host, allowed)


def refusal(address: str, allowed: Sequence[Network] = ()) -> str | None:
    """The reason why nobody connects to this address; None where it is public, or in one of the allowed networks."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return f"{address[:64]!a} is no address"
    if any(found.version == network.version and found in network for network in allowed):
        return None
    if isinstance(found, IPv6Address) and found in _NAT64:
        found = IPv4Address(int(found) & 0xFFFFFFFF)  # how a network without IPv4 reaches the rest
    refused = _REFUSED_4 if isinstance(found, IPv4Address) else _REFUSED_6
    if not found.is_global or found.is_multicast or any(found in one for one in refused):
        return f"{address} is no public address"
    return None
