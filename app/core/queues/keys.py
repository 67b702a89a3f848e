"""Every key of the queues in Redis. `{t}` is `{<database>.<shard>}`, as for the log: a window is beside its shard.

| key | type | content | ends |
|---|---|---|---|
| `mqtt:queues` | hash | what is declared, its version, and the names of what was changed lately | never |
| `mqtt:queue:{t}:<id>` | hash | where it was fed to, life, counts; `<id>:dead`: of dead letters | with the queue |
| `…:ready` | hash | place → group of references | with the queue |
| `…:loans` | hash | number → deliveries, consumer, what is open, references | with the queue |
| `…:due` | sorted set | loans and later groups by when they come back | with the queue |
| `…:later` | hash | number → group | with the queue |
| `…:keys` | hash | device → the event that holds it, and those that wait | with the queue |
| `…:consumers` | sorted set | names by when they last asked | with the queue |
| `…:call:<node>` | string | the last take of a node, so that it happens once | a minute |
| `mqtt:dying:{t}` | sorted set | references on the way to become dead letters, by number | never |
| `mqtt:dying:{t}:about` | hash | the last number, and how many are being buried | never |
"""

from __future__ import annotations

from typing import Final

from app.core.events.event import Shard
from app.core.queues.loans import QueueSource

DECLARED: Final = "mqtt:queues"
HINTS: Final = "mqtt:queue-hints"
"""The channel on which nodes say in which queues something became ready."""
_PARTS: Final = ("ready", "loans", "due", "later", "keys")


def window(source: QueueSource) -> list[str]:
    """The hash of a source, and the keys of all that is in its window."""
    name = f"mqtt:queue:{{{source.shard}}}:{source.queue_id}{':dead' if source.dead else ''}"
    return [name, *(f"{name}:{part}" for part in _PARTS)]


def due(source: QueueSource) -> str:
    """Return what comes back in a window, by when."""
    return f"{window(source)[0]}:due"


def consumers(source: QueueSource) -> str:
    """Return who asked lately."""
    return f"{window(source)[0]}:consumers"


def call(source: QueueSource, node_id: str) -> str:
    """The last take of a node."""
    return f"{window(source)[0]}:call:{node_id}"


def dying(shard: Shard) -> list[str]:
    """Return what is dying in a shard, and the hash about it."""
    name = f"mqtt:dying:{{{shard}}}"
    return [name, f"{name}:about"]
