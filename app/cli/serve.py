"""`homing serve`: one node, or several worker processes behind one port."""

from __future__ import annotations

import socket
from typing import Annotated, Any

import typer

from app.cli.output import Exit, Stop


def serve(
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes; each is a node of its own.")] = 1,
    host: Annotated[str | None, typer.Option(help="Instead of HOMING_API_HOST.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Instead of HOMING_API_PORT.")] = None,
    node_id: Annotated[str | None, typer.Option(help="Instead of HOMING_NODE_ID; -1, -2, … for workers.")] = None,
    listen_fd: Annotated[int | None, typer.Option(hidden=True, help="A worker's inherited socket.")] = None,
) -> None:
    """Run a node. Settings come from the environment and from .env: see .env.example.

    Stops in an orderly way on SIGTERM and SIGINT. Exit code: 0 stopped, 1 failed, 2 wrong settings.
    """
    from app.observability import configure_logging
    from app.settings import load_settings

    api = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    overrides: dict[str, Any] = {"api": api} if api else {}
    if node_id is not None:
        overrides["node"] = {"id": node_id}
    settings = load_settings(**overrides)
    configure_logging(settings.log.level, settings.log.format)

    from app.cli.server import listen, run_node
    from app.core.errors import HomingError

    if workers > 1:
        from app.cli.workers import check_store

        check_store(workers, settings)
    if listen_fd is not None:
        listener = socket.socket(fileno=listen_fd)
    else:
        listener = listen(settings.api.host, settings.api.port)
    if workers > 1:
        from app.cli.workers import run_workers

        code = run_workers(workers, settings, listener)
        raise Stop("", Exit(code))
    try:
        run_node(settings, listener, until_parent_ends=listen_fd is not None)
    except HomingError:
        raise
    except Exception as error:
        raise Stop(f"the node failed: {str(error) or type(error).__name__}") from error
