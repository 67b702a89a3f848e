"""A command of this node that is open, with all that a record of it will say."""

from __future__ import annotations

from app.core.access.places import ConcurrencyPermit
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.commands.reach import NEVER_LEFT, NOTHING_KNOWN, DeliveryProgress
from app.core.commands.reception import Reception
from app.core.commands.routing import Outcome
from app.core.messages import Receipt
from app.mqtt.base import Puback


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
        "if_offline",
        "method",
        "one_way",
        "opened_at",
        "place",
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
    if_offline: IfOffline

    def __init__(
        self, opened_at: float, command: Command | None = None, place: ConcurrencyPermit | None = None
    ) -> None:
        """`command` is one that is on record already; `place` is what it takes of its caller's limits."""
        self.opened_at = opened_at
        self.place = place
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
        self.puback: Puback | None = None
        """The PUBACK of the publish, which may still wait for room in the broker's window."""
        self.state = CommandState.PENDING
        """The outcome, once it is known here."""
        self.received_by: str | None = None
        self.reception: Reception | None = None
        self.profile = ""
        self.registered = False
        """True if the store has it."""
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
        self.if_offline = command.if_offline
        self.created_us = command.begun_at
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

    def reach(self, *, tells: bool) -> DeliveryProgress:
        """Return how far it came, as is known here; `tells` is whether its broker says when nobody is subscribed."""
        puback = self.puback
        if puback is None:
            return NOTHING_KNOWN
        if not puback.left:
            return NEVER_LEFT
        if not puback.done() or puback.cancelled() or puback.exception() is not None:
            return DeliveryProgress(published=True, acknowledged=False)
        receipt = puback.result()
        if receipt is Receipt.UNACKNOWLEDGED:
            return DeliveryProgress(published=True)
        subscribed = False if receipt is Receipt.UNMATCHED else (True if tells else None)
        return DeliveryProgress(
            published=True,
            acknowledged=True,
            subscribed=subscribed,
            acknowledged_at=self.store_us(self.acknowledged_at),
        )

    def store_us(self, instant: float | None) -> int | None:
        """An instant after the registration on the store's clock, early by less than the store's answer took.

        It counts from the last instant that the store gave, so that no step is before what it came after.
        """
        if instant is None:
            return None
        if self.closed_at is not None and instant >= self.closed_at:
            return self.finished_us + round((instant - self.closed_at) * 1_000_000)
        began = self.opened_at if self.registered_at is None else self.registered_at
        return self.created_us + round((instant - began) * 1_000_000)

    def withdraw(self) -> None:
        """Take its publish out of the queue for the broker, if it still waits there."""
        if self.puback is not None and not self.puback.done():
            self.puback.cancel()
