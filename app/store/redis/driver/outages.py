"""Tells an outage of Redis, which passes, from a mistake of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError


def is_connection_error(error: BaseException) -> bool:
    """True if Redis, or the way to it, is at fault.

    uvloop raises a bare RuntimeError for a write to a transport that the peer closed a moment before (uvloop#506).
    """
    if isinstance(error, RuntimeError):
        return "the handler is closed" in str(error)
    return isinstance(error, RedisError | OSError | TimeoutError)


@contextmanager
def outages_pass() -> Iterator[None]:
    """Leave the block at an outage, and go on behind it."""
    try:
        yield
    except Exception as error:
        if not is_connection_error(error):
            raise
