"""Peers of the network: the addresses that somebody has at will count as one."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final

LOOPBACK: Final = "loopback"
_IPV6_SUBNET_BITS: Final = 64
"""One household or server has at least that many addresses at will."""


def network_of(address: str) -> str:
    """`peer_of`, where all addresses of this machine are one, too: whoever is here has all of them."""
    peer = peer_of(address)
    with suppress(ValueError):
        if ip_address(peer).is_loopback or ip_address(address).is_loopback:
            return LOOPBACK
    return peer


def peer_of(address: str) -> str:
    """Return the peer that an address counts for: an IPv4 address, or the network that an IPv6 address is of."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    host_bits = parsed.max_prefixlen - _IPV6_SUBNET_BITS
    return str(IPv6Address(int(parsed) >> host_bits << host_bits))
