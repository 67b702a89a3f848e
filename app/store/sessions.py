"""The port of what a broker keeps: rows, which are read once and written as they change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class SessionStore(Protocol):
    """The rows of one broker. Only it knows what is in them."""

    async def start(self) -> Mapping[bytes, bytes]:
        """Open it, once nobody else has it; all rows that there are.

        ConfigurationError, or StoreUnavailableError where it may come back.
        """

    async def close(self) -> None:
        """Give back what it holds."""

    def check(self) -> None:
        """Return as long as the rows are this process's; BrokerTakenOverError."""

    async def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows, and delete those that are None: durable when it returns, all or none.

        StoreUnavailableError; then the rows may be there or not, and are to be written again. BrokerTakenOverError.
        """
