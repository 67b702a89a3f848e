"""The caller who asks in this task: known from where a request comes in to where it is put on record."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from app.core.access.callers import Caller

_LONGEST: Final = 256


class RequestOrigin(NamedTuple):
    """A caller, and where their request came from."""

    caller: Caller | None
    address: str | None
    agent: bytes | None
    """The header User-Agent as it came."""

    @property
    def shown_agent(self) -> str | None:
        """The agent, as it is shown: not longer than 256 characters."""
        return None if self.agent is None else self.agent.decode("latin-1")[:_LONGEST]


ASKING: Final[ContextVar[RequestOrigin | None]] = ContextVar("asking", default=None)
"""Set for each request of a node that keeps an audit."""
