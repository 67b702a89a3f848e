"""Opens what a URL of a Redis needs: one combiner, or one for each primary of a Redis Cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from app.core.redis_address import NO_TERMS, RedisKind, RedisTerms, parse_redis_url
from app.runtime.histograms import StoreMeasures
from app.store.redis.driver.combiner import Combiner
from app.store.redis.driver.lane import Argument, CombinerOptions, Script
from app.store.redis.driver.router import SlotRouter
from app.store.redis.driver.server import connector


class StoreCalls(Protocol):
    """The calls of one part of a node to its Redis. `Combiner` says what each of them does."""

    @property
    def connected(self) -> bool: ...

    @property
    def outstanding(self) -> int: ...

    @property
    def last_error(self) -> str: ...

    def start(self) -> None: ...

    async def close(self) -> None: ...

    def refuse(self) -> Sequence[asyncio.Task[None]]: ...

    async def run_script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], budget: float | None
    ) -> Any: ...  # noqa: ANN401 - what the script replies

    async def call(self, command: tuple[Argument, ...], budget: float | None, *, beside: str = "") -> Any: ...  # noqa: ANN401 - a reply

    async def call_many(self, commands: Sequence[tuple[Argument, ...]], budget: float) -> list[Any]: ...

    async def everywhere(self, command: tuple[Argument, ...], budget: float, *, partly: bool = False) -> list[Any]: ...

    def server_of(self, key: str) -> str: ...


def open_calls(
    url: str,
    scripts: Sequence[Script],
    *,
    counters: Counter[str],
    options: CombinerOptions | None = None,
    measures: StoreMeasures | None = None,
    terms: RedisTerms = NO_TERMS,
) -> StoreCalls:
    """Not started yet; ConfigurationError when the URL cannot be used."""
    options = options or CombinerOptions()
    connect = connector(url, terms, options.name)
    address = parse_redis_url(url)
    if address.kind is not RedisKind.CLUSTER:
        return Combiner(connect, scripts, counters=counters, options=options, measures=measures)
    return SlotRouter(
        url,
        lambda place: connector(address.url_of(place), name=options.name),
        scripts,
        counters=counters,
        options=options,
        measures=measures,
    )
