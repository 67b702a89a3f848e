"""Errors about queues and exchanges.

QueueError                 about a queue or an exchange; nothing was changed
├── QueuesOffError         this node keeps none
├── QueueNotFoundError
├── QueueDiffersError      it is declared otherwise already
├── QueueNotEmptyError     it was to be deleted only if it is empty
├── QueueChangedError      others have changed what is declared, again and again
├── ExchangeNotFoundError
├── ExchangeDiffersError   it is of another kind
├── ExchangeInUseError     queues have routes from it
└── UnroutedError          no queue has a route for what was said
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class QueueError(HomingError):
    """Base of errors about a queue or an exchange; nothing was changed."""


class QueuesOffError(QueueError):
    """This node keeps no queues; says why."""


class QueueNotFoundError(QueueError):
    """There is no such queue that the caller may know of."""


class QueueDiffersError(QueueError):
    """A queue of this name is declared otherwise; says in which fields."""


class QueueNotEmptyError(QueueError):
    """The queue was to be deleted only if it is empty."""


class QueueChangedError(QueueError):
    """Others have changed what is declared meanwhile, more often than it was tried again."""


class ExchangeNotFoundError(QueueError):
    """There is no such exchange that the caller may know of."""


class ExchangeDiffersError(QueueError):
    """An exchange of this name is of another kind."""


class ExchangeInUseError(QueueError):
    """Queues have routes from the exchange; names them."""


class UnroutedError(QueueError):
    """No queue has a route for what was said."""
