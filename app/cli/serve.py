"""`homing serve`: one node, or several worker processes behind one port."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import Stop
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.settings import Settings

_Workers = Annotated[int, typer.Option(min=1, max=256, help="The number of processes; each is a node of its own.")]
_Host = Annotated[str | None, typer.Option(help="The address to listen on, in place of HOMING_API_HOST.")]
_Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="The port to listen on, in place of HOMING_API_PORT.")
]
_NodeId = Annotated[str | None, typer.Option(help="The node id, in place of HOMING_NODE_ID. Workers append -1, -2, ….")]
_WorkerPort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65535,
        help="An additional port for the first worker alone; the next worker listens on the next port.",
    ),
]
_ListenFd = Annotated[list[int] | None, typer.Option(hidden=True, help="The sockets that a worker inherits.")]
_OpsFd = Annotated[int | None, typer.Option(hidden=True, help="The inherited socket for health and metrics.")]


def serve(
    workers: _Workers = 1,
    host: _Host = None,
    port: _Port = None,
    node_id: _NodeId = None,
    worker_port: _WorkerPort = None,
    listen_fd: _ListenFd = None,
    ops_fd: _OpsFd = None,
) -> None:
    """Run a node. Settings come from the environment and from .env: see .env.example.

    SIGTERM and SIGINT stop it in an orderly way. Exit code: 0 stopped, 1 failed, 2 wrong settings.
    """
    from app.runtime.structured_logs import load_structlog

    load_structlog()
    from app.runtime.telemetry import configure_logging
    from app.settings import load_settings

    api = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    overrides: dict[str, Any] = {"api": api} if api else {}
    if node_id is not None:
        overrides["node"] = {"id": node_id}
    settings = load_settings(**overrides)
    configure_logging(settings.log.level, settings.log.format)

    from app.runtime.sockets import listen
    from app.server.sockets import listen_for_operations, refuse_strangers

    if worker_port is not None and not 1 < workers <= 65536 - worker_port:
        raise Stop("--worker-port: needs --workers, and a port of its own for each of them up to 65535", Exit.USAGE)
    if workers > 1:
        from app.server.workers import check_store

        check_store(workers, settings)
    if listen_fd:
        listeners = [socket.socket(fileno=one) for one in listen_fd]
        operations = None if ops_fd is None else socket.socket(fileno=ops_fd)
    else:
        listeners = [listen(settings.api.host, settings.api.port)]
        refuse_strangers(settings, *listeners)
        operations = listen_for_operations(settings) if workers == 1 else None
    if workers > 1:
        from app.server.workers import run_workers

        own = [] if worker_port is None else [listen(settings.api.host, worker_port + at) for at in range(workers)]
        probed = [one for at in range(workers) if (one := listen_for_operations(settings, at)) is not None]
        code = run_workers(workers, settings, listeners[0], own, probed)
        raise Stop("", Exit(code))
    serve_node(settings, *listeners, operations=operations, until_parent_ends=bool(listen_fd))


def serve_node(
    settings: Settings,
    *listeners: socket.socket,
    operations: socket.socket | None,
    until_parent_ends: bool = False,
    when_ready: Callable[[], None] | None = None,
) -> None:
    """Run the node of this process; Stop with a sentence when it fails."""
    from app.core.errors import HomingError
    from app.server.run import run_node

    try:
        run_node(
            settings,
            *listeners,
            operations=operations,
            until_parent_ends=until_parent_ends,
            when_ready=when_ready,
        )
    except HomingError:
        raise
    except Exception as error:
        raise Stop(f"the node failed: {str(error) or type(error).__name__}") from error
