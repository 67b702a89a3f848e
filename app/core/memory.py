"""The memory of a node that is everything in one process, and the shares of it that each part may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from app.core.sizes import MIB

DEFAULT_MEMORY: Final = 512 * MIB
CODE: Final = 160 * MIB
"""A node takes so much before it keeps anything, with the libraries of its first start."""
LEAST_MEMORY: Final = 192 * MIB
TABLES_BYTES: Final = 48 * MIB
"""The bytes of tables and blocks of RocksDB in a node that was told nothing."""
RECORDS_BYTES: Final = 1024 * MIB
"""The bytes of commands in a store of one process that was told nothing."""
MOST_CONNECTIONS: Final = 1_000_000
MOST_SESSIONS: Final = 10_000_000
"""The most sessions, and the most subscriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShares:
    """Bounds of what a node keeps in memory; the defaults are those of a node with DEFAULT_MEMORY.

    All of them may be full at once: `python -m homing_rig.figures full-box` fills them and shows what is taken then.
    """

    broker_connections: int = 4_000
    sessions: int = 8_000
    subscriptions: int = 40_000
    """The subscriptions of all sessions together. Each takes 1.2 KiB."""
    waiting_bytes: int = 64 * MIB
    """The bytes of messages that wait for clients of the broker, or are on the way to them."""
    retained_bytes: int = 32 * MIB
    records_bytes: int = 96 * MIB
    """The bytes of commands, open or not, that the store of one process has; 2 KiB are counted for each, and more if it
    has long params or a long result."""
    tables_bytes: int = 32 * MIB
    """The bytes of tables and blocks of RocksDB."""
    process_bytes: int = DEFAULT_MEMORY * 9 // 10
    """The bytes that the process may take before the broker accepts no new sessions."""
    open_commands: int = 8_000
    """The open commands. Each takes 2.5 KiB, with all that a node does for it."""
    waiters: int = 2_000
    api_connections: int = 4_000

    @classmethod
    def of(cls, memory: int) -> Self:
        """Return the shares of so many bytes; ValueError when they are too few.

        All grow alike with what is left beside the code.
        """
        if memory < LEAST_MEMORY:
            raise ValueError(
                f"{memory // MIB}MiB are too few: a node takes {CODE // MIB}MiB before it keeps anything; "
                f"allowed: {LEAST_MEMORY // MIB}MiB and more"
            )

        def share(of_default: int) -> int:
            return of_default * (memory - CODE) // (DEFAULT_MEMORY - CODE)

        usual = cls()
        return cls(
            broker_connections=min(MOST_CONNECTIONS, share(usual.broker_connections)),
            sessions=min(MOST_SESSIONS, share(usual.sessions)),
            subscriptions=min(MOST_SESSIONS, share(usual.subscriptions)),
            waiting_bytes=share(usual.waiting_bytes),
            retained_bytes=share(usual.retained_bytes),
            records_bytes=share(usual.records_bytes),
            tables_bytes=share(usual.tables_bytes),
            process_bytes=memory * 9 // 10,
            open_commands=share(usual.open_commands),
            waiters=share(usual.waiters),
            api_connections=min(MOST_CONNECTIONS, share(usual.api_connections)),
        )
