"""Acknowledged by replicas: behind each batch that wrote, Redis is asked how many of them have it.

WAIT counts for all that its connection has seen, also what others wrote. So a call that is sent again, and finds that
its first sending has done the work, waits for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from app.store.redis.driver.calls import pack

WAIT_MS: Final = 200
"""The time that replicas have for their answer: then the writes are sent again."""
SHORT_PAUSE_SECONDS: Final = 0.05
"""The time for which a lane pauses after that."""

READING: Final = frozenset(
    (
        *(
            "EXISTS",
            "GET",
            "HGET",
            "HGETALL",
            "HMGET",
            "HSCAN",
            "HVALS",
            "INFO",
            "MGET",
            "PING",
            "PTTL",
            "PUBLISH",
            "PUBSUB",
        ),
        *(
            "ROLE",
            "TIME",
            "XRANGE",
            "XREAD",
            "ZCARD",
            "ZCOUNT",
            "ZRANGE",
            "ZRANGEBYLEX",
            "ZRANGEBYSCORE",
            "ZREVRANGEBYSCORE",
        ),
        "ZSCORE",
    )
)
"""Commands that leave everything as it is."""

_log = structlog.get_logger(__name__)


def writes(command: Sequence[str | bytes | int]) -> bool:
    """True if replicas are to have what it changes. Scripts count as writing, but those that say otherwise."""
    return command[0] not in READING


class ReplicaWait:
    """`replicas` have to acknowledge; with 0, Redis is never asked."""

    def __init__(self, replicas: int, counters: Counter[str]) -> None:
        self.short = False
        """Too few replicas acknowledged the latest batch that wrote."""
        self.asked: Final = replicas > 0
        self._replicas = replicas
        self._counters = counters
        self.packed: Final = pack(("WAIT", replicas, WAIT_MS))
        """The packed call that stands behind a batch."""
        self.trial: Final = pack(("WAIT", 0, WAIT_MS))
        """Answered at once, where the user may ask at all."""

    def told(self, count: int) -> bool:
        """Return True if so many replicas are enough."""
        before, self.short = self.short, count < self._replicas
        if self.short:
            self._counters["store.wait_short"] += 1
        if self.short and not before:
            _log.warning("replicas_missing", wanted=self._replicas, acknowledged=count)
        elif before and not self.short:
            _log.info("replicas_enough", wanted=self._replicas)
        return not self.short
