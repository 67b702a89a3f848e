"""URLs of the services that a node needs. What is wrong with one never repeats it: it may hold a password."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def split_address(url: str) -> SplitResult:
    """The parts of `scheme://user:password@host:port/…`; ValueError when they cannot be told apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is no URL: scheme://host:port is needed") from None
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(
            "has no port number after its host; in a user name or password write / as %2F, ? as %3F, # as %23, @ as %40"
        ) from None
    return parts
