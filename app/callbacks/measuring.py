"""What is measured of each command, taken from the instants that the registry notes."""

from __future__ import annotations

from app.callbacks.pending import Pending
from app.core.command import CommandState
from app.core.routing import Outcome
from app.measures import OTHER_PROFILE, Measures


class Measuring:
    """Observes the registry of a node."""

    def __init__(self, measures: Measures, node_id: str) -> None:
        self._measures = measures
        self._node_id = node_id

    def closed(self, pending: Pending) -> None:
        """A command of this node has its outcome, and a parked caller was handed it."""
        sent, closed, delivered = pending.published_at, pending.closed_at, pending.delivered_at
        if closed is None or pending.registered_at is None:  # begun by an earlier start of this node
            self._measures.finished(pending.profile, pending.state)
            return
        acknowledged = pending.acknowledged_at
        self._measures.finished(
            pending.profile,
            pending.state,
            forwarded=pending.received_by != self._node_id,
            register=pending.registered_at - pending.opened_at,
            publish=None if acknowledged is None or sent is None else acknowledged - sent,
            respond=None if pending.received_by is None or sent is None else closed - sent,
            deliver=None if delivered is None else delivered - closed,
            total=(closed if delivered is None else delivered) - pending.opened_at,
        )

    def foreign(self, outcome: Outcome) -> None:
        """This node ended a command that is not open here: its home died, or forgot it as it could not be sent.

        Not what a caller cancelled here: its home counts that.
        """
        if outcome.state is not CommandState.CANCELLED:
            self._measures.finished(OTHER_PROFILE, outcome.state)
