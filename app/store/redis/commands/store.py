"""The state store that a cluster shares: what reads and what changes commands, on the same connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.histograms import StoreMeasures
from app.runtime.telemetry import Fill
from app.store.redis.commands.echo_states import RedisEchoStates
from app.store.redis.commands.history import RedisCommandHistory
from app.store.redis.commands.holds import RedisHolds
from app.store.redis.commands.questions import RedisQuestionTurns
from app.store.redis.commands.reader import RedisCommandReader
from app.store.redis.commands.server_starts import RedisServerStarts
from app.store.redis.commands.stream import RedisCommandChanges
from app.store.redis.commands.timed_scripts import TimedScripts
from app.store.redis.commands.writer import RedisCommandWriter
from app.store.redis.driver.lane import CombinerOptions
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.steps import StoreClocks
from app.store.redis.driver.unreadable import Unreadable
from app.store.redis.fleets import RedisFleets
from app.store.redis.schedules import RedisSchedules
from app.store.redis.webhooks import RedisWebhooks


class RedisStateStore(RedisCommandReader, RedisCommandWriter, RedisCommandHistory, RedisHolds, RedisQuestionTurns):
    """One object for all of the ports, so that a call goes straight to its script."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        counters: Counter[str],
        wake_key: WakeKey,
        new_secret: Callable[[], str],
        budget: timedelta = timedelta(seconds=2),
        options: CombinerOptions | None = None,
        measures: StoreMeasures | None = None,
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        """`budget` bounds each call but `respond`. ConfigurationError when the URL cannot be used."""
        lanes = Lanes(
            url,
            counters=counters,
            budget=budget.total_seconds(),
            options=options or CombinerOptions(),
            measures=measures or StoreMeasures(),
            terms=terms,
        )
        unreadable, clocks = Unreadable(counters, clock), StoreClocks(counters)
        timed = TimedScripts(lanes, clocks, clock)
        RedisCommandReader.__init__(self, lanes, unreadable, clock)
        RedisCommandWriter.__init__(
            self,
            lanes,
            unreadable,
            clock=clock,
            clocks=clocks,
            timed=timed,
            counters=counters,
            wake_key=wake_key,
            attempts_of=new_secret(),
        )
        RedisCommandHistory.__init__(self, lanes, unreadable)
        RedisHolds.__init__(self, lanes, unreadable, timed)
        RedisQuestionTurns.__init__(self, lanes)
        self.states: Final = RedisEchoStates(lanes, self)
        self.webhooks: Final = RedisWebhooks(lanes)
        self.fleets: Final = RedisFleets(lanes)
        self.schedules: Final = RedisSchedules(lanes)
        self.starts: Final = RedisServerStarts(lanes)
        self.changes: Final = RedisCommandChanges(lanes)

    @property
    def connected(self) -> bool:
        """True if a connection stands, as far as we know."""
        return self._lanes.connected

    async def start(self) -> None:
        await self._lanes.start()

    async def close(self) -> None:
        await self._lanes.close()

    def fills(self) -> dict[str, Fill]:
        return self._lanes.fills()

    async def ping(self) -> None:
        await self._lanes.ping()
