"""A broker for each module, on a loop in a thread, and clients that are gone after each test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count

import pytest

from app.runtime.system import SystemClock
from tests.broker import RunningBroker, running_broker
from tests.conformance.raw import CONNACK, V3, V5, Heard, Pairs, RawClient, Will, connect
from tests.waiting import PATIENCE

_names = count(1)


class SteppedClock(SystemClock):
    """Goes by itself, and further when a test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Bench:
    """The broker, its time and its clients."""

    def __init__(self) -> None:
        self.faults: list[object] = []
        self._clock = SteppedClock()
        self._clients: list[RawClient] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, context: self.faults.append(context))
        self._ready: Future[RunningBroker] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self.running = self._ready.result(PATIENCE)

    async def _serve(self) -> None:
        try:
            async with running_broker(clock=self._clock) as running:
                self._ready.set_result(running)
                await self._stop.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        self._loop.close()
        assert self.faults == [], "an exception has got out of the broker"

    def client(self, version: int = V5) -> RawClient:
        """A connection on which nothing was said yet."""
        client = RawClient(self.running.port, version)
        self._clients.append(client)
        return client

    def join(
        self,
        client_id: str | None = None,
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive: int = 0,
        properties: Pairs = (),
        will: Will | None = None,
    ) -> RawClient:
        """A client whose CONNECT was accepted, under a name of its own by default."""
        return self.joined(client_id, version, clean=clean, keep_alive=keep_alive, properties=properties, will=will)[0]

    def joined(
        self,
        client_id: str | None = None,
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive: int = 0,
        properties: Pairs = (),
        will: Will | None = None,
    ) -> tuple[RawClient, Heard]:
        """As `join`, with the CONNACK."""
        name = f"client{next(_names)}" if client_id is None else client_id
        client = self.client(version)
        said = connect(name, version, clean=clean, keep_alive=keep_alive, properties=properties, will=will)
        connack = client.ask(said, CONNACK)
        assert connack.code == 0, hex(connack.code)
        return client, connack

    def lose(self, client: RawClient) -> None:
        """The client's connection is lost, and the broker knows."""
        left = len(self.running.broker.connections) - 1
        client.drop()
        self.wait_for_connections(left)

    def drop_all(self) -> None:
        for client in self._clients:
            client.drop()
        self._clients.clear()
        self.wait_for_connections(0)

    def wait_for_connections(self, connections: int) -> None:
        while len(self.running.broker.connections) > connections:
            threading.Event().wait(0.0005)

    def later(self, seconds: float) -> None:
        """Let so much time pass, and the broker look what is due."""
        ticked: Future[None] = Future()

        def tick() -> None:
            self.running.broker.tick()
            ticked.set_result(None)

        self._clock.ahead += seconds
        self._loop.call_soon_threadsafe(tick)
        ticked.result(PATIENCE)


@pytest.fixture(scope="module")
def _bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def bench(_bench: Bench) -> Iterator[Bench]:
    yield _bench
    _bench.drop_all()
    assert _bench.faults == [], "an exception has got out of the broker"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A first level for topics and the beginning of client ids that no other test has."""
    return f"t{next(_names)}"


@pytest.fixture(params=[V3, V5], ids=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)
