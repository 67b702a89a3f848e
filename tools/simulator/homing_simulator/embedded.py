"""A small MQTT 3.1.1 broker inside this process, for the demo: nothing to install, nothing to configure.

Not for production: no shared subscriptions, no persistence, one event loop with everything else.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

# amqtt has no types for others.
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter  # type: ignore[import-untyped]
from amqtt.broker import Broker  # type: ignore[import-untyped]
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType  # type: ignore[import-untyped]

HOST: Final = "127.0.0.1"
STOP_BUDGET: Final = 1.0
"""How many seconds stopping may take; what is left then ends with the process."""

_LISTENER: Final = "default"
_ANYBODY: Final = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


class EmbeddedBroker:
    """A broker on a free port of 127.0.0.1, as an asynchronous context manager; for clients of 3.1.1."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """As for HOMING_MQTT_URL; the clients must speak 3.1.1."""
        if self._server is None:
            raise RuntimeError("the embedded broker is not running")
        return f"mqtt://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        # It tells every connection and every lost race as a warning or an error.
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        # The listener is "external", which means ours, because the broker does not tell which free port it took.
        config = BrokerConfig(listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL)}, plugins=dict(_ANYBODY))
        self._broker = Broker(config)
        await self._broker.start()
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, broker = self._server, self._broker
        self._server = self._broker = None
        if server is not None:
            server.close()
        if broker is not None:
            try:
                async with asyncio.timeout(STOP_BUDGET):
                    await broker.shutdown()
            except TimeoutError:
                logging.getLogger(__name__).debug("the embedded broker did not stop in time")
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: those of asyncio.start_server complain aloud when they are cancelled.
        task = asyncio.get_running_loop().create_task(self._connected(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._broker is not None:
                streams = StreamReaderAdapter(reader), StreamWriterAdapter(writer)
                await self._broker.external_connected(*streams, _LISTENER)
        finally:
            writer.close()
