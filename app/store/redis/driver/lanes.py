"""The two connections of a store: one for commands, and one for lists, so that no command waits behind these."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms, parse_redis_url
from app.runtime.histograms import StoreMeasures
from app.runtime.tasks import end
from app.runtime.telemetry import Fill
from app.store.redis.driver.lane import Argument, CombinerOptions, Script
from app.store.redis.driver.scripts import SCRIPTS
from app.store.redis.driver.server import ServerWatch, connector, parse_info
from app.store.redis.driver.store_calls import StoreCalls, open_calls

LIST_BATCH: Final = 16
"""The slices of lists, or scripts that read lists, that go to Redis in one round trip: it soon serves others."""


class Lanes:
    """`budget` bounds each call but patient ones, in seconds. ConfigurationError when the URL cannot be used."""

    def __init__(
        self,
        url: str,
        *,
        counters: Counter[str],
        budget: float,
        options: CombinerOptions,
        measures: StoreMeasures,
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        self.budget = budget
        connector(url, terms)
        self._url = url
        self._terms = terms
        self._counters = counters
        self._options = replace(options, name="homing-commands", wait_replicas=terms.wait_replicas)
        self._measures = measures
        self._combiner: StoreCalls | None = None
        self._bulk: StoreCalls | None = None
        self._watch = ServerWatch(self._info, counters, parse_redis_url(url).kind)
        self._watching: list[asyncio.Task[None]] = []

    @property
    def connected(self) -> bool:
        """True if a connection stands, as far as we know."""
        return self._combiner is not None and self._combiner.connected

    async def start(self) -> None:
        """See the port."""
        if self._combiner is not None:
            return
        combiner, bulk = self._combiner, self._bulk = self._open(self._options), self._open(self._bulk_options())
        combiner.start()
        bulk.start()
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                await combiner.call(("PING",), None)
                await self._watch.check()
        except TimeoutError:
            reason = combiner.last_error or f"no answer within {self._options.answer_seconds:g} s"
            await self.close()
            raise StoreUnavailableError(f"Redis cannot be used now: {reason}") from None
        except BaseException:
            await self.close()
            raise
        self._watching = [asyncio.create_task(self._watch.run(), name="store watch")]

    async def close(self) -> None:
        """See the port."""
        tasks, self._watching = self._watching, []
        for combiner in (self._combiner, self._bulk):
            tasks += () if combiner is None else combiner.refuse()
        self._combiner = self._bulk = None
        await end(tasks)  # all at once: whoever closes may be cancelled over it, and nothing may go on then

    def fills(self) -> dict[str, Fill]:
        """See the port."""
        waiting = 0 if self._combiner is None else self._combiner.outstanding
        lists = 0 if self._bulk is None else self._bulk.outstanding
        options = self._options
        return {"store_calls": Fill(waiting, options.max_queue), "store_lists": Fill(lists, options.max_queue)}

    async def ping(self) -> None:
        """See the port."""
        if self._watch.unfit:
            raise StoreUnavailableError(self._watch.unfit)
        await self.call("PING")

    async def now(self, key: str = "") -> int:
        """Redis's clock, in microseconds since the epoch: that of the server that has the key, or of any."""
        seconds, microseconds = await _running(self._combiner).call(("TIME",), self.budget, beside=key)
        return int(seconds) * 1_000_000 + int(microseconds)

    def server_of(self, key: str) -> str:
        """The name of the server that has this key; empty where there is one for all."""
        return _running(self._combiner).server_of(key)

    async def starts(self) -> frozenset[str]:
        """The ids of the present starts of all servers that take writes and answer, as INFO has them."""
        infos = await _running(self._bulk).everywhere(("INFO", "server"), self.budget, partly=True)
        return frozenset(start for one in infos if (start := parse_info(one).get("run_id")))

    async def listens(self, channel: str) -> bool:
        """True if somebody listens on a channel of a Redis Cluster; False where nobody can say."""
        try:
            counts = await _running(self._combiner).everywhere(("PUBSUB", "NUMSUB", channel), self.budget)
        except StoreUnavailableError:
            return False
        return any(int(one[1]) > 0 for one in counts)

    async def run(self, script: Script, script_keys: Sequence[str], *arguments: Argument, patient: bool = False) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script; a patient call waits as long as it takes."""
        return await _running(self._combiner).run_script(
            script, script_keys, arguments, None if patient else self.budget
        )

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        return await _running(self._combiner).call(command, self.budget)

    async def run_for_list(self, script: Script, script_keys: Sequence[str], *arguments: Argument) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script that reads a part of a list."""
        return await _running(self._bulk).run_script(script, script_keys, arguments, self.budget)

    async def call_for_list(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """The replies of commands that read a slice of a list, with the errors of those that Redis refused for good."""
        return await _running(self._bulk).call_many(commands, self.budget) if commands else []

    async def replies_for_list(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """The same, where nothing may be refused: StoreRefusedError."""
        replies = await self.call_for_list(commands)
        for one in replies:
            if isinstance(one, BaseException):
                raise StoreRefusedError(str(one))
        return replies

    def _open(self, options: CombinerOptions) -> StoreCalls:
        return open_calls(
            self._url, SCRIPTS, counters=self._counters, options=options, measures=self._measures, terms=self._terms
        )

    def _bulk_options(self) -> CombinerOptions:
        return replace(self._options, name="homing-lists", lanes=1, batch=LIST_BATCH)

    async def _info(self) -> Sequence[bytes]:
        return await _running(self._combiner).everywhere(("INFO",), self._options.answer_seconds)


def _running(combiner: StoreCalls | None) -> StoreCalls:
    if combiner is None:
        raise StoreUnavailableError("the store is closed")
    return combiner
