"""The broker of a node, served on the loop of the test on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count

from app.broker.certificate import ServerCertificate
from app.broker.keeper import SessionKeeper
from app.broker.listener import BrokerListener, BrokerSocket, limited_peer
from app.broker.operators import BrokerOperations
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.journal import BrokerJournal
from app.core.broker.rights import Door
from app.core.clock import Clock
from app.runtime.sockets import listen
from app.runtime.system import SystemClock
from app.store.sessions import SessionStore


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that clients can reach."""

    broker: Broker
    port: int
    counters: Counter[str]
    tls_port: int
    """The same as `port` if there is no certificate."""
    operations: BrokerOperations

    @property
    def url(self) -> str:
        """As for HOMING_MQTT_URL."""
        return f"mqtt://127.0.0.1:{self.port}"


@asynccontextmanager
async def running_broker(
    bounds: BrokerBounds | None = None,
    store: SessionStore | None = None,
    door: Door | None = None,
    certificate: ServerCertificate | None = None,
    clock: Clock | None = None,
    name_peer: Callable[[str], str] = limited_peer,
    memory: Callable[[], int] = lambda: 0,
) -> AsyncIterator[RunningBroker]:
    """Inside the block; afterwards all connections are closed. `store` keeps what it keeps.

    With a `certificate`, it listens with TLS on a second port.
    """
    counters: Counter[str] = Counter()
    numbers = count(1)
    broker = Broker(
        clock=clock or SystemClock(),
        new_client_id=lambda: f"auto-{next(numbers)}",
        counters=counters,
        bounds=bounds or BrokerBounds(),
        journal=BrokerJournal(keeps=store is not None),
        door=door,
    )
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    sockets = [BrokerSocket(listener)]
    if certificate is not None:
        sockets.append(BrokerSocket(listen("127.0.0.1", 0), certificate))
    tls_port = sockets[-1].listener.getsockname()[1]
    keeper = None if store is None else SessionKeeper(broker, store)
    serving = BrokerListener(broker, sockets, keeper, name_peer, memory=memory)
    task = asyncio.create_task(serving.run())
    try:
        yield RunningBroker(broker, port, counters, tls_port, BrokerOperations(broker, keeper))
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await serving.close()
