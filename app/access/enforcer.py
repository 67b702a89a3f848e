"""Limits of callers on this node: how often they may send, and how many commands they may have open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from app.access.ports import LimitState
from app.core.access.callers import Caller, CallerStanding
from app.core.access.limits import Buckets, Shares, bucket_of
from app.core.access.places import ConcurrencyPermit, ConcurrencyPermits
from app.core.access.questions import AccessDecision
from app.core.access.rules import AccessRule, Action, Concurrency, Limit, Per
from app.core.access.snapshot import Snapshot
from app.core.errors import RateLimitError, TooManyOpenError


class LimitEnforcer:
    """Enforces limits. Of each limit this node has its share; `nodes` tells how many share them."""

    def __init__(self, nodes: Callable[[], int]) -> None:
        self._buckets: Final = Buckets()
        self._places: Final = ConcurrencyPermits()
        self.shares: Final = Shares(nodes, self._places.taken)
        """This node's parts of limits."""

    def spend(self, decision: AccessDecision, action: Action, now_us: int) -> ConcurrencyPermit | None:
        """Spend a token of each limit with a rate, and give a place of each that limits what is open.

        RateLimitError, TooManyOpenError: then nothing is spent.
        """
        tokens: list[tuple[str, Limit, float]] = []
        places: list[str] = []
        for key, rule in decision.counted:
            share, limit = self.shares.ask(key), rule.limit
            if isinstance(limit, Limit):
                tokens.append((key, limit, share))
            elif limit is not None:
                self._check_room(key, rule, limit, share)
                places.append(key)
        wait = self._buckets.take(tokens, now_us)
        if wait:
            told = ", ".join(rule.text for rule in decision.limits if isinstance(rule.limit, Limit))
            raise RateLimitError(f"limited by {told}", wait, str(action), _policies(limit for _, limit, _ in tokens))
        return self._places.place(places) if places else None

    def _check_room(self, key: str, rule: AccessRule, limit: Concurrency, share: float) -> None:
        elsewhere = self.shares.taken_elsewhere(key)
        if not self._places.free(key, limit.most, share, elsewhere):
            own = self._places.taken().get(key, 0)
            raise TooManyOpenError(
                f"limited by {rule.text}: {own} open commands are counted on this node, {elsewhere:g} on others"
            )

    def states(self, snapshot: Snapshot, standing: CallerStanding, caller: Caller, now_us: int) -> Iterator[LimitState]:
        """All limits that hold for the caller somewhere, and what is left of each on this node."""
        for rule in _rules(snapshot, standing, now_us):
            if rule.limit is not None:
                yield self._state(rule, rule.limit, bucket_of(standing, caller, rule, ""), now_us)

    def _state(self, rule: AccessRule, limit: Limit | Concurrency, key: str, now_us: int) -> LimitState:
        share = self.shares.of(key)
        if limit.per is Per.DEVICE:
            return LimitState(rule, share, None)
        if isinstance(limit, Limit):
            return LimitState(rule, share, int(self._buckets.left(key, limit, share, now_us)))
        left = self._places.free(key, limit.most, share, self.shares.taken_elsewhere(key))
        return LimitState(rule, share, left, self._places.taken().get(key, 0))


def _rules(snapshot: Snapshot, standing: CallerStanding, now_us: int) -> Iterable[AccessRule]:
    """The rules that count for the caller somewhere, each once."""
    grants = [one for subject in standing.subjects for one in snapshot.grants.get(subject, ())]
    held = [
        one.rules
        for one in grants
        if (one.binding.expires_us is None or now_us < one.binding.expires_us)
        and (standing.tenant_id is None or one.binding.tenant_id in (None, standing.tenant_id))
    ]
    narrow = snapshot.narrows.get(standing.credential.id) if standing.credential else None
    return dict.fromkeys(rule for one in (*held, *([narrow] if narrow else ())) for rule in one.rules)


def _policies(limits: Iterable[Limit]) -> tuple[tuple[int, int], ...]:
    """The policy of each of these limits: how often in how many seconds."""
    return tuple((one.count, one.per_us // 1_000_000) for one in limits)
