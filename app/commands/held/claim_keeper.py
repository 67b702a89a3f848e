"""Claims for a node, and tells a store that may have forgotten its last second what was claimed before it claims again.

A claim that the store forgets is a command that is held although it was sent: whoever looked at it next would send it
a second time. So each node keeps its claims for a while, and claims only in starts of the store's servers that all
nodes have told of theirs (docs/adr/0232).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from app.cluster.directory import ClusterDirectory
from app.core.clock import Clock
from app.core.errors import CapacityError, StoreUnavailableError, UnavailableError
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Counters, Fill
from app.store.holds import Claimed, HoldStore, Restarted, Waits
from app.store.server_starts import KeptClaim, Reclaimed, ServerStarts

T = TypeVar("T")

KEPT_SECONDS: Final = 10.0
"""Redis that is killed forgets a second or two. A replica that is further behind than this may be promoted, and then
knows nothing of older claims: they are not told again (docs/guarantees.md)."""
MOST_KEPT: Final = 10_000
"""A node that claims more than that in `KEPT_SECONDS`, or cancels more, keeps the latest: `drop.kept_claim` counts."""
MOST_STARTS: Final = 64
LOOK_SECONDS: Final = 1.0
ASK_SECONDS: Final = 0.2
BEYOND_LEASE: Final = 2.0
"""Nodes that say nothing for their lease and so many seconds are waited for no longer."""
AT_A_TIME: Final = 64


class ClaimKeeper:
    """`cancel` ends a command only if it is held; `lease` is that of nodes, in seconds."""

    def __init__(
        self,
        *,
        store: HoldStore,
        starts: ServerStarts,
        cancel: Callable[[str], Awaitable[object]],
        directory: ClusterDirectory,
        node_id: str,
        new_secret: Callable[[], str],
        lease: float,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.settled: Final[Listeners[[]]] = Listeners()
        """Called when claims may go on."""
        self._store: Final = store
        self._starts: Final = starts
        self._cancel: Final = cancel
        self._directory: Final = directory
        self._node_id: Final = node_id
        self._new_secret: Final = new_secret
        self._patience: Final = lease + BEYOND_LEASE
        self._now: Final = clock.monotonic
        self._counters: Final = counters
        self._kept: Final[OrderedDict[str, tuple[KeptClaim, float]]] = OrderedDict()
        """The claims by token, each with when it was made, in seconds on the monotonic clock; the latest is last."""
        self._cancelled: Final[OrderedDict[str, float]] = OrderedDict()
        self._told: dict[str, None] = {}
        """The starts of servers that know of all claims, latest last; none where nothing is forgotten."""
        self._members: AbstractSet[str] = frozenset()
        """The members that lived when the last look found nothing new: a lease may run out while the store is away."""
        self._ready = False
        self._look_now = asyncio.Event()
        self._log = structlog.get_logger()

    @property
    def ready(self) -> bool:
        """True if commands may be claimed."""
        return self._ready

    def new_token(self) -> str:
        """A text that no other attempt of any node has."""
        return f"{self._node_id} {self._new_secret()}"

    def fills(self) -> dict[str, Fill]:
        """The fill of what is kept."""
        return {"kept_claims": Fill(len(self._kept), MOST_KEPT)}

    async def claim(self, command_id: str, token: str) -> Claimed | Waits | None:
        """Claim a command as the store has it. StoreUnavailableError, also while that may have forgotten claims."""
        claimed = await self._store.claim(command_id, self._node_id, token, self._told.keys())
        if isinstance(claimed, Restarted):
            self._restarted(claimed.start)
            raise StoreUnavailableError("it was started anew, and is told first what was claimed", asked=False)
        if isinstance(claimed, Claimed) and claimed.record:
            self._kept[token] = KeptClaim(claimed, token), self._now()
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
                self._counters["drop.kept_claim"] += 1
        return claimed

    async def give_back(self, command_id: str, token: str) -> bool:
        """Undo a claim as the store does."""
        self._kept.pop(token, None)
        return await self._store.give_back(command_id, token)

    def cancelled(self, command_id: str) -> None:
        """Note a command that this node has cancelled: it is not held again either."""
        self._cancelled[command_id] = self._now()
        self._cancelled.move_to_end(command_id)  # it may have been cancelled before, and held again
        if len(self._cancelled) > MOST_KEPT:
            self._cancelled.popitem(last=False)
            self._counters["drop.kept_claim"] += 1

    async def run(self) -> None:
        """Look until cancelled whether the store is what it was."""
        while True:
            self._look_now.clear()
            try:
                await self.look()
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("claims_not_reasserted", reason=str(failure))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look_now.wait()

    async def look(self) -> None:
        """Look now, and tell new starts. StoreUnavailableError: claims go on where they went on before."""
        asked_at = self._now()
        starts = await self._starts.starts()
        if new := starts - self._told.keys():
            self._ready = False
            await self._tell(new)
            self._told |= dict.fromkeys(sorted(new))
            for one in [*self._told][:-MOST_STARTS]:
                del self._told[one]
        else:
            self._forget_before(asked_at - KEPT_SECONDS)
        self._members = self._directory.leased or frozenset()
        if not self._ready:
            self._ready = True
            self.settled()

    def _restarted(self, start: str) -> None:
        if start not in self._told:
            self._ready = False
            self._look_now.set()

    async def _tell(self, new: AbstractSet[str]) -> None:
        """Return when these starts know what all nodes have claimed."""
        began = self._now()
        await self._directory.nodes()
        others = (self._members | (self._directory.leased or frozenset())) - {self._node_id}
        results = Counter[str]()
        for some in in_groups([kept for kept, _ in self._kept.values()]):
            results.update(await asyncio.gather(*(self._starts.reclaim(one, self._node_id) for one in some)))
        for ids in in_groups([*self._cancelled]):
            await asyncio.gather(*(self._cancel(one) for one in ids))
        await self._starts.enter(self._node_id, new | self._told.keys())
        while silent := [one for one, entered in (await self._starts.entered(others)).items() if not new <= entered]:
            if self._now() - began >= self._patience:
                self._log.warning("claims_of_others_unknown", node_ids=sorted(silent))
                break
            await asyncio.sleep(ASK_SECONDS)
        for result in (Reclaimed.AGAIN, Reclaimed.RESTORED, Reclaimed.TAKEN):
            self._counters[f"held.reasserted.{result}"] += results[result]
        if self._told or results:
            self._log.warning("claims_reasserted", seconds=round(self._now() - began, 2), **results)

    def _forget_before(self, at: float) -> None:
        while self._kept and next(iter(self._kept.values()))[1] < at:
            self._kept.popitem(last=False)
        while self._cancelled and next(iter(self._cancelled.values())) < at:
            self._cancelled.popitem(last=False)


def in_groups(all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield them in their order, a few at a time."""
    for first in range(0, len(all_of_them), AT_A_TIME):
        yield all_of_them[first : first + AT_A_TIME]
