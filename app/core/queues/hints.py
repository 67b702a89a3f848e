"""Hints that something became ready in queues, as nodes send them to each other.

A hint is the id of a queue, and behind it the sources of it in which something became ready, each behind a colon:
`01J… :events.0 :events.3`. An id without sources means any of them, as 0.2.0 writes it, which takes no notice of
sources. A hint about nothing at all, the empty text, means any queue: hints were lost.

`log :events.0` is about no queue, as none has this id: something was appended to a shard, and whoever feeds queues from
it reads it. `declared` is about what is declared: somebody has changed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from app.core.events.event import Shard
from app.core.queues.loans import QueueSource

_SOURCE: Final = ":"
_LOG: Final = "log"
_DECLARED: Final = "declared"


class QueueHint(NamedTuple):
    """A queue in which something became ready, and in which of its sources. Empty: in any."""

    queue_id: str = ""
    sources: frozenset[str] = frozenset()

    @property
    def is_about_log(self) -> bool:
        """True if something was appended, and nothing became ready yet."""
        return self.queue_id == _LOG

    @property
    def is_about_declarations(self) -> bool:
        """True if somebody has declared, changed or deleted something."""
        return self.queue_id == _DECLARED

    def is_about(self, source: QueueSource) -> bool:
        """Return whether something may be ready in this source of the queue."""
        return not self.sources or str(source) in self.sources


ANY_QUEUE: Final = QueueHint()
"""Hints were lost: something may be ready anywhere."""
CHANGED_DECLARATIONS: Final = QueueHint(_DECLARED)
"""Something was declared, changed or deleted."""


def appended_to(shard: Shard) -> QueueHint:
    """Return the hint that something was appended to a shard."""
    return QueueHint(_LOG, frozenset({str(shard)}))


def hints_of(sources: Iterable[QueueSource]) -> list[QueueHint]:
    """Return a hint for each queue."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in sources:
        found[one.queue_id].add(str(one))
    return [QueueHint(queue_id, frozenset(names)) for queue_id, names in sorted(found.items())]


def hint_text(hints: Iterable[QueueHint]) -> str:
    """Return hints as they are sent."""
    return " ".join(" ".join((one.queue_id, *(f"{_SOURCE}{name}" for name in sorted(one.sources)))) for one in hints)


def read_hints(text: str) -> list[QueueHint]:
    """Return the hints of a text, whoever wrote it."""
    found: list[tuple[str, set[str]]] = []
    for word in text.split(" "):
        if not word.startswith(_SOURCE):
            found.append((word, set()))
        elif found:
            found[-1][1].add(word.removeprefix(_SOURCE))
    return [QueueHint(queue_id, frozenset(names)) for queue_id, names in found]
