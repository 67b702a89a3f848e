"""Decisions whether to try again, and when, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from homing_client._errors import UnreachableError
from homing_client._wire import Reply, Request

_OWN_TIMEOUT: Final = "urn:homing:problem:timed-out"
_NOTHING_DONE: Final = frozenset({429})
"""The node refused before it did anything, so that anything may be sent again."""
_SAVED: Final = 10
_MOST_DOUBLINGS: Final = 60
"""After this number of doublings a nanosecond has become longer than anybody waits."""
_BUSY: Final = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retry:
    """The rules by which a client tries again.

    What it sends again is safe to send twice: a command carries an idempotency key.

    `attempts`: with the first. Between two of them it waits a random time of at most `first` × 2ⁿ, never more than
    `most`, and never less than the node asked for by `Retry-After`; where that is more than `most`, it gives up.
    `share`: retries may be this share of all requests at most, so that clients do not bring down what is struggling;
    `burst` of them may come before that, and ten times as many are saved up for when a node dies. Whom a node that is
    not there did not get to hear is sent to the next one at once, and counts for nothing: nobody bears it.
    """

    attempts: int = 5
    first: timedelta = timedelta(milliseconds=100)
    most: timedelta = timedelta(seconds=20)
    share: float = 0.15
    burst: int = 50

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.share < 0 or self.burst < 0:
            raise ValueError("attempts must be 1 or more, share and burst 0 or more")


NO_RETRY: Final = Retry(attempts=1)


class Budget:
    """A bucket of retries: each request puts in a share of one, each retry takes one out."""

    def __init__(self, share: float, burst: int) -> None:
        self._share, self._most = share, burst * _SAVED
        self._left = float(burst)

    def deposit(self) -> None:
        """A request was made."""
        self._left = min(self._most, self._left + self._share)

    def withdraw(self) -> bool:
        """Take a retry; False when there is none left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Attempts:
    """The attempts at one request. Ask `again` after each that failed, and sleep for as long as it says."""

    def __init__(
        self, request: Request, retry: Retry, budget: Budget, chance: Callable[[], float], *, others: int = 0
    ) -> None:
        """`others`: how many nodes there are besides the one that is asked first."""
        self._request, self._retry, self._budget, self._chance = request, retry, budget, chance
        self._others = others if retry.attempts > 1 else 0
        self._made = 0
        budget.deposit()

    def again(self, ended: Reply | UnreachableError) -> float | None:
        """Seconds to wait before the next attempt; None when this was the last one."""
        if isinstance(ended, UnreachableError) and not ended.sent and self._others:
            self._others -= 1
            return 0.0
        self._made += 1
        asked = None
        if isinstance(ended, Reply):
            if not worth_trying_again(self._request, ended):
                return None
            asked = retry_after(ended.headers)
        elif ended.sent and not self._request.repeatable:
            return None
        if self._made >= self._retry.attempts:
            return None
        wait = pause(self._retry, self._made, asked, self._chance)
        return wait if wait is not None and self._budget.withdraw() else None


def worth_trying_again(request: Request, reply: Reply) -> bool:
    """True if this answer may be another one in a moment. A deadline that a device has missed stays missed."""
    if reply.status not in _BUSY:
        return False
    if reply.status == 504 and reply.is_json and reply.json().get("type") == _OWN_TIMEOUT:  # noqa: PLR2004 - RFC 9110
        return False
    return request.repeatable or reply.status in _NOTHING_DONE


def pause(retry: Retry, attempt: int, asked: float | None, chance: Callable[[], float]) -> float | None:
    """Seconds to wait after attempt number `attempt` (from 1); None when it makes no sense to wait.

    Full jitter, so that those who failed together do not come back together.
    """
    most = retry.most.total_seconds()
    if asked is not None and asked > most:
        return None
    ceiling = min(most, retry.first.total_seconds() * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))
    return (asked or 0.0) + chance() * ceiling


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After`; nodes never send its other form, a date."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004 - 30 years
