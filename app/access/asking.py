"""Who asks in this task: known from where a request comes in to where it is put on record."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from app.core.access.callers import Caller


class Asking(NamedTuple):
    """A caller, and where their request came from."""

    caller: Caller | None
    address: str | None
    agent: str | None


ASKING: Final[ContextVar[Asking | None]] = ContextVar("asking", default=None)
"""Set for each request of a node that keeps an audit."""
