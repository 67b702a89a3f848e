"""Errors about the broker in the node.

BrokerError                   about the broker in the node; nothing was changed
├── BrokerOffError            this node has none
├── BrokerTakenOverError      its sessions are those of another process now
└── BrokerEntryNotFoundError  it has no such session or retained message
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class BrokerError(HomingError):
    """Base of errors about the broker in the node; nothing was changed."""


class BrokerOffError(BrokerError):
    """This node has no broker of its own."""


class BrokerTakenOverError(BrokerError):
    """The broker does not own what it keeps any more; says why."""


class BrokerEntryNotFoundError(BrokerError):
    """The broker has no such session, or no such retained message."""
