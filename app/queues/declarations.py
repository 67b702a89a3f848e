"""The declarations as they were read last: queues, exchanges, and documents that this version cannot read."""

from __future__ import annotations

from typing import Final

import structlog

from app.core.filtertree import FilterTree, Pattern
from app.core.queues.exchanges import DeclaredExchange, KeyRoute, decode_exchange
from app.core.queues.model import DeclaredQueue, decode_queue
from app.store.declared import Declarations

_log = structlog.get_logger(__name__)


class KnownDeclarations:
    """Takes in what has changed: of a thousand documents that is one, and the others are not looked at."""

    def __init__(self) -> None:
        self.queues: dict[str, DeclaredQueue] = {}
        """Queues by the names of their documents, and in the order of these."""
        self.by_id: Final[dict[str, DeclaredQueue]] = {}
        self.exchanges: dict[str, DeclaredExchange] = {}
        self.unreadable: Final[dict[str, bytes]] = {}
        self.routing: Final[FilterTree[str]] = FilterTree()
        """The names of queues, by what they get of exchanges."""
        self._documents: Final[dict[str, bytes]] = {}

    def learn(self, told: Declarations) -> frozenset[str]:
        """Take this in. Return the ids of the queues that are others than before, of those that are gone as well."""
        changes = dict(told.documents)
        if told.whole:
            changes |= {name: None for name in self._documents if name not in told.documents}
        changes = {name: one for name, one in changes.items() if self._documents.get(name) != one}
        before = [self.queues.get(name) for name in changes]
        for name, document in sorted(changes.items()):
            self._replace(name, document)
        if changes:
            self.queues = dict(sorted(self.queues.items()))
            self.exchanges = dict(sorted(self.exchanges.items()))
        after = [self.queues.get(name) for name in changes]
        return frozenset(one.id for one in (*before, *after) if one is not None)

    def _replace(self, name: str, document: bytes | None) -> None:
        before = self.queues.pop(name, None)
        if before is not None:
            self.by_id.pop(before.id, None)
            for pattern in _key_patterns(before):
                self.routing.remove(pattern, before.name)
        self.exchanges.pop(name, None)
        was_unreadable = self.unreadable.pop(name, None) is not None
        if document is None:
            self._documents.pop(name, None)
            return
        self._documents[name] = document
        try:
            if name.startswith("q "):
                self._put(name, decode_queue(document))
            elif name.startswith("x "):
                self.exchanges[name] = decode_exchange(document)
        except (ValueError, KeyError, TypeError) as error:
            self.unreadable[name] = document
            reason = f"{type(error).__name__}: {error}"[:200]
            if not was_unreadable and name.startswith("q "):
                _log.warning("unreadable_queue", name=name, reason=reason)
            elif not was_unreadable:
                _log.warning("unreadable_exchange", name=name, reason=reason)

    def _put(self, name: str, queue: DeclaredQueue) -> None:
        for pattern in _key_patterns(queue):
            self.routing.add(pattern, queue.name)
        self.queues[name] = self.by_id[queue.id] = queue


def _key_patterns(queue: DeclaredQueue) -> list[Pattern]:
    return [one.pattern(queue.tenant) for one in queue.options.routes if isinstance(one, KeyRoute)]
