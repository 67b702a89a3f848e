"""A command of this node that is open, with all that a record of it will say."""

from __future__ import annotations

import asyncio

from app.core.command import Command, CommandState
from app.core.reception import Reception
from app.core.routing import Outcome


class Pending:
    """Instants end in `_at` and are on the monotonic clock; `created_us` and those below it are on the store's.

    None is what has not happened, or not here: a command that an earlier incarnation left open was sent by that one.
    Not a dataclass, and with slots: it is made for every command.
    """

    __slots__ = (
        "acknowledged_at",
        "attempt",
        "closed_at",
        "command_id",
        "created_us",
        "deadline_us",
        "delivered_at",
        "device_id",
        "error",
        "finished_us",
        "method",
        "one_way",
        "opened_at",
        "profile",
        "progressed_at",
        "puback",
        "published_at",
        "received_by",
        "reception",
        "record_seconds",
        "registered",
        "registered_at",
        "request_bytes",
        "state",
    )

    command_id: str
    device_id: str
    method: str
    profile: str
    created_us: int
    deadline_us: int
    finished_us: int
    error: bytes | None
    one_way: bool

    def __init__(self, opened_at: float, command: Command | None = None) -> None:
        """`command` is one that is on record already."""
        self.opened_at = opened_at
        self.registered_at: float | None = None
        self.published_at: float | None = None
        self.acknowledged_at: float | None = None
        self.progressed_at: float | None = None
        self.closed_at: float | None = None
        """This node knew of the outcome."""
        self.delivered_at: float | None = None
        """A parked caller was handed the outcome."""
        self.record_seconds: float | None = None
        self.request_bytes: int | None = None
        self.attempt = 1
        self.puback: asyncio.Future[None] | None = None
        """Of its publish, which may still wait for room in the broker's window."""
        self.state = CommandState.PENDING
        """The outcome, once it is known here."""
        self.received_by: str | None = None
        self.reception: Reception | None = None
        self.profile = ""
        self.registered = False
        """Whether the store has it."""
        if command is not None:
            self.about(command)

    def about(self, command: Command) -> None:
        """Note what it is, as it is on record; without its params, which may be large."""
        self.registered = True
        self.command_id = command.id
        self.device_id = command.device_id
        self.method = command.method
        self.profile = command.profile
        self.one_way = command.one_way
        self.created_us = command.created_at
        self.deadline_us = command.deadline

    def close(self, outcome: Outcome, now: float, record_seconds: float | None) -> None:
        """Note how it ended; without the result. What has not left for the broker by now never does."""
        self.withdraw()
        self.closed_at = now
        self.record_seconds = record_seconds
        self.state = outcome.state
        self.finished_us = outcome.finished_at
        self.received_by = outcome.received_by
        self.reception = outcome.reception
        self.error = outcome.error

    def withdraw(self) -> None:
        """Take its publish out of the queue for the broker, if it still waits there."""
        if self.puback is not None and not self.puback.done():
            self.puback.cancel()
