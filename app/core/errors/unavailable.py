"""Errors of something that is away: this node needs it, and it may be back.

UnavailableError               something this node needs is away; try again later
├── StoreUnavailableError
│   └── StoreRefusedError      the store answered, with an error that trying again does not mend
├── DirectoryUnavailableError  the access directory did not answer within the budget of the call
├── BrokerUnavailableError
│   └── PublishRefusedError    the broker said no to a message
├── PublishUnconfirmedError    the connection was lost before PUBACK: it may have arrived
├── NotYetError                another node does not know yet what it would have to
├── InterlockBlindError        the values that interlocks judge by cannot be read
├── NodeDrainingError
└── NodeIdTakenError           another live node has this node id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.core.errors.base import HomingError

if TYPE_CHECKING:
    from app.core.commands.command import Command


class UnavailableError(HomingError):
    """Something this node needs is away."""

    command_id: str | None = None
    """The command that it befell, which is or may be on record."""
    command: Command | None = None
    """The same, as it is known here; None where nothing was recorded, or nobody knows."""


class StoreUnavailableError(UnavailableError):
    """The state store did not answer within the budget of the call."""

    def __init__(self, reason: str = "", *, asked: bool = True) -> None:
        super().__init__(reason)
        self.asked = asked
        """False where the call was not sent to the store, which so carries nothing out."""


class StoreRefusedError(StoreUnavailableError):
    """The store answered with an error that trying again does not mend."""


class DirectoryUnavailableError(UnavailableError):
    """The access directory did not answer within the budget of the call. A change may or may not have been made."""


class BrokerUnavailableError(UnavailableError):
    """There is no connection to the MQTT broker, or its send window is full: nothing was sent."""


class PublishRefusedError(BrokerUnavailableError):
    """The broker answered a message with PUBACK 0x80 or above: nobody got it (MQTT 5, section 3.4.2.1)."""


class PublishUnconfirmedError(UnavailableError):
    """The connection was lost between PUBLISH and PUBACK: the message may have arrived."""


class NotYetError(UnavailableError):
    """Another node of the cluster does not know yet what it would have to: it is of an earlier version."""


class InterlockBlindError(UnavailableError):
    """The values that interlocks judge by cannot be read; nothing was sent."""


class NodeDrainingError(UnavailableError):
    """This node is about to stop and takes no new commands."""


class NodeIdTakenError(UnavailableError):
    """Another live node holds the lease of this node id."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"a live node is called {node_id!r} already: give this one another HOMING_NODE_ID")
        self.node_id = node_id
