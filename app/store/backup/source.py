"""The store of a data folder as it is at one moment: a checkpoint, or itself while no process has it."""

from __future__ import annotations

import json
import select
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.store.rocks.checkpoints import ANSWER_SECONDS, CHECKPOINT, SOCKET, connect_to
from app.store.rocks.layout import FolderLock

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def still_store(data: Path, store: Path) -> Iterator[Path]:
    """Yield a folder with the files of the store, which do not change meanwhile.

    While no process has the folder, none can begin with it until the block ends. ConfigurationError when it can neither
    be had nor asked for; StoreUnavailableError when the node cannot make a checkpoint now.
    """
    with ExitStack() as held:
        try:
            for one in (data, store):
                lock = FolderLock(one, copies=True)
                lock.acquire()
                held.callback(lock.release)
        except ConfigurationError:
            held.close()
            yield from _checkpoint_of(data, store)
        else:
            yield store


def _checkpoint_of(data: Path, store: Path) -> Iterator[Path]:
    """Ask the node that has the folder; the checkpoint is there until the connection ends."""
    try:
        connection = connect_to(store)
    except OSError:
        raise ConfigurationError(
            f"{data} is in use, and nobody answers at {store / SOCKET}; wait until the node has started, or stop it"
        ) from None
    with connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            with connection.makefile("rb") as said:
                told: Any = json.loads(said.readline())
        except TimeoutError:
            raise ConfigurationError(
                f"the node that uses {data} made no checkpoint within {ANSWER_SECONDS:.0f} s; see its log"
            ) from None
        except (OSError, ValueError):
            raise ConfigurationError(f"the node that uses {data} made no checkpoint; see its log") from None
        if "error" in told:
            raise StoreUnavailableError(f"the node that uses {data} made no checkpoint: {told['error']}")
        yield store / CHECKPOINT
        if _has_ended(connection):
            raise StoreUnavailableError(f"the node that used {data} ended while its store was copied; begin anew")


def _has_ended(connection: socket.socket) -> bool:
    """True if the node has gone, and perhaps the checkpoint before it was read: it says nothing more while it lasts."""
    return bool(select.select([connection], [], [], 0)[0])
