"""Queues as one caller may use them: what every route of queues is given."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Path

from app.api import problems
from app.api.dependencies import Asker, NodePorts, WhoAsks
from app.api.openapi import acts
from app.api.problems import BY_ERROR
from app.api.v1.command_models import said
from app.core import errors
from app.core.access.rules import Action
from app.core.queues.model import NAME, DeclaredQueue, validate_queue_name
from app.queues.plane import QueuePlane, needed_queues

AWAY: Final = (BY_ERROR[errors.StoreUnavailableError], BY_ERROR[errors.QueuesOffError])
"""The problems of every route of queues."""
OF_ONE: Final = (BY_ERROR[errors.QueueNotFoundError], problems.INVALID, *AWAY)
"""The problems of every route of one queue."""
MANAGES: Final = acts(Action.QUEUES)
CONSUMES: Final = acts(Action.CONSUME)

QueueName = Annotated[
    str,
    Path(description="The name of the queue.", json_schema_extra=said(NAME), examples=["alarms"], alias="name"),
]


class QueueCounter:
    """Queues, for one caller."""

    def __init__(self, plane: QueuePlane, asker: Asker, ports: NodePorts) -> None:
        self.plane = plane
        self.asker = asker
        self.tenant = asker.tenant()
        self._audit = ports.audit

    async def find(self, name: str, action: Action) -> DeclaredQueue:
        """The queue, where the caller may do this with it; QueueNotFoundError, ForbiddenError."""
        validate_queue_name(name)
        self.asker.check_queue(action, name)
        return await self.plane.find(self.tenant, name)

    def note(self, name: str, done: str) -> None:
        """Put on record what the caller has done with a queue."""
        if self._audit is not None:
            self._audit.queue(name, self.tenant, done)


async def _counter(ports: NodePorts, asker: WhoAsks) -> QueueCounter:
    return QueueCounter(needed_queues(ports.queues), asker, ports)


AtCounter = Annotated[QueueCounter, Depends(_counter)]
