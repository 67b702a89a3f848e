"""The chores of a node for queues, beside feeding and lending: each now and then, and none in a hurry."""

from __future__ import annotations

from dataclasses import dataclass

from app.queues.burials import Burials
from app.queues.gauges import QueueGauges
from app.queues.unused import UnusedQueues


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChores:
    """Dead letters are buried, queues that nobody uses end, and how all of them stand is asked for `/metrics`."""

    burials: Burials
    unused: UnusedQueues
    gauges: QueueGauges
