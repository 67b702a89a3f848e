"""Runs one node in this process: its listening socket, uvicorn, signals, and why it ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final, cast

import structlog
import uvicorn

from app import __version__
from app.adapters import open_adapters
from app.api.operations import Operations
from app.broker.plane import with_own_login
from app.core.addresses import is_loopback, shown_address
from app.core.errors import HomingError
from app.main import Homing
from app.runtime.sockets import BACKLOG
from app.runtime.system import SystemClock, new_secret
from app.runtime.telemetry import Counters
from app.server.hosts import Hosts
from app.server.limiter import TICK_SECONDS, ConnectionLimiter
from app.server.open_files import limits_of
from app.server.protocol import BoundedProtocol
from app.server.sockets import OpsListener, url_of
from app.settings import AccessSettings, Settings

GC_THRESHOLDS: Final = (20_000, 50, 50)
READY_SECONDS: Final = 0.05
"""The time between two looks at a starting node, by who wants to tell that it is ready."""
GRACE_SECONDS: Final = 10
"""The time that open requests may take to end when the node stops."""


def _shown_access(access: AccessSettings) -> str:
    """The callers that are let in, in words."""
    if access.url:
        return "by keys"
    return "open to everybody" if access.open else "open to this machine"


def http_config(
    application: Any,  # noqa: ANN401 - any application
    limiter: ConnectionLimiter,
    hosts: Hosts,
    ops: OpsListener | None = None,
) -> uvicorn.Config:
    """The configuration with which uvicorn serves a node."""
    return uvicorn.Config(
        application,
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, limiter=limiter, hosts=hosts, ops=ops)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class _Server(uvicorn.Server):
    """uvicorn that says where it listens, once it does, and that stops in the order in which no request fails.

    On SIGTERM the node drains first, while requests are still served, as balancers go on sending for a moment. uvicorn
    stops the node only when all requests have ended, so those that wait for an outcome are sent away before.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Coroutine[Any, Any, None]],
        dismiss_callers: Callable[[], None],
        limiter: ConnectionLimiter,
        settings: Settings,
        ops: OpsListener | None = None,
    ) -> None:
        super().__init__(config)
        self._ops = ops
        self._settings = settings
        self._drain = drain
        self._limiter = limiter
        self._dismiss_callers = dismiss_callers
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exiting: Final = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self._draining is not None or not self.started or self._loop is None:
            super().handle_exit(sig, frame)
            self._wake()
            return
        self._loop.call_soon_threadsafe(self._begin_to_drain, sig, frame)

    def _begin_to_drain(self, sig: int, frame: FrameType | None) -> None:
        async def drain() -> None:
            try:
                await self._drain()
            finally:
                super(_Server, self).handle_exit(sig, frame)
                self._exiting.set()

        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(drain(), name="drain")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        for listener in sockets or ():
            if self._ops is not None and listener.getsockname()[1] == self._ops.port:
                structlog.get_logger().info("ops_listens", url=url_of(listener))
                continue
            structlog.get_logger().info(
                "http_listens",
                url=url_of(listener),
                version=__version__,
                store=shown_address(self._settings.store.url),
                broker=shown_address(self._settings.mqtt.url),
                profile=self._settings.profile,
                access=_shown_access(self._settings.access),
            )

    async def main_loop(self) -> None:
        """Tick once a second until it is to exit. uvicorn looks ten times as often whether that is so."""
        while not await self.on_tick(0):
            self._limiter.tick()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._exiting.wait()

    def stop(self) -> None:
        """Begin to stop, also from the handler of a signal."""
        self.should_exit = True
        self._wake()

    def _wake(self) -> None:
        if self._loop is None or self._loop.is_closed():
            self._exiting.set()
        else:
            self._loop.call_soon_threadsafe(self._exiting.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dismiss_callers()
        await super().shutdown(sockets)


class NodeServer:
    """A node behind listening sockets. `failure` says afterwards why it could not start or go on."""

    def __init__(self, settings: Settings, *listeners: socket.socket, operations: socket.socket | None = None) -> None:
        self.failure: BaseException | None = None
        settings = with_own_login(settings, new_secret())
        limits, settings = limits_of(settings)
        self._listeners = [*listeners, *([] if operations is None else [operations])]
        counters: Counters = Counter()
        self.limiter = ConnectionLimiter(limits, SystemClock(), counters)
        homing = Homing(
            settings, open_adapters(settings, counters, self.fail), self.fail, {"connections": self.limiter.fill}
        )
        self._node: Final = homing.node
        loopback = all(is_loopback(listener.getsockname()[0]) for listener in listeners)
        hosts = Hosts(
            settings.api.allowed_hosts, loopback=loopback, direct=not (settings.access.open or settings.access.url)
        )
        ops = None
        if operations is not None:
            ops = OpsListener(operations.getsockname()[1], Operations(homing.application.ports))
        self.uvicorn = _Server(
            http_config(homing.application, self.limiter, hosts, ops),
            homing.drain,
            homing.application.dismiss,
            self.limiter,
            settings,
            ops,
        )

    def fail(self, error: BaseException) -> None:
        """Stop, because a part of the node ended that must run."""
        self.failure = self.failure or error
        self.stop()

    def stop(self) -> None:
        """Begin to stop; `serve` returns when done."""
        self.uvicorn.stop()

    async def been_ready(self) -> None:
        """Return when the node is ready with all that it depends on."""
        await self._node.been_ready()
        while not (await self._node.health()).ready:  # noqa: ASYNC110 - what a node depends on has no event
            await asyncio.sleep(READY_SECONDS)

    def parent_ended(self) -> None:
        """Stop, because standard input ended."""
        asyncio.get_running_loop().remove_reader(0)
        self.stop()

    async def serve(self) -> None:
        """Serve until stopped; raises the HomingError that kept it from starting or going on."""
        try:
            await self.uvicorn.serve(sockets=self._listeners)
        except SystemExit:
            if self.failure is None:
                raise
        if self.failure is not None:
            raise self.failure


def run_node(
    settings: Settings,
    *listeners: socket.socket,
    operations: socket.socket | None = None,
    until_parent_ends: bool = False,
    when_ready: Callable[[], None] | None = None,
) -> None:
    """Serve on these sockets in this process until SIGTERM or SIGINT; raises the error that ended it otherwise.

    With `until_parent_ends`, standard input is a pipe from the parent, and its end is a reason to stop. `when_ready` is
    called once, when the node is ready for the first time.
    """
    bridge_logging()
    server = NodeServer(settings, *listeners, operations=operations)
    # A command leaves few cycles, and walking all that lives for them takes a seventh of a node's time under load.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # uvicorn takes the signals over while it runs, and afterwards raises those it got again: that must not kill us.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.stop())

    async def serve() -> None:
        if until_parent_ends:
            asyncio.get_running_loop().add_reader(0, server.parent_ended)
        telling = None if when_ready is None else asyncio.create_task(_tell(server, when_ready), name="tell")
        try:
            await server.serve()
        finally:
            if telling is not None:
                telling.cancel()

    with asyncio.Runner(loop_factory=server.uvicorn.config.get_loop_factory()) as runner:
        runner.run(serve())


async def _tell(server: NodeServer, when_ready: Callable[[], None]) -> None:
    await server.been_ready()
    when_ready()


class _ToStructlog(logging.Handler):
    """Logs the messages of libraries in the form of everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            structlog.get_logger().log(
                record.levelno,
                "library_message",
                library=record.name,
                message=record.getMessage(),
                exc_info=record.exc_info or False,
            )


class _Unexplained(logging.Filter):
    """Without the tracebacks of errors that the user is told in a sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HomingError)


def bridge_logging() -> None:
    """Let the warnings of libraries come out of structlog."""
    handler = _ToStructlog(logging.WARNING)
    handler.addFilter(_Unexplained())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # Its only errors at start and stop are those that NodeServer raises; the others belong to a request.
    logging.getLogger("uvicorn.error").addFilter(_is_about_a_request)


def _is_about_a_request(record: logging.LogRecord) -> bool:
    return "lifespan" not in record.pathname and "Traceback" not in record.getMessage()
