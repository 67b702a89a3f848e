"""The progress of a command that is known when its deadline passed, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.core.commands.faults import fault

TIMED_OUT: Final = "timed_out"
"""Error code of a command that has timed out."""


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """The knowledge that a node has of a command; None is what it does not know.

    `published` is whether it was written to the broker's connection, `acknowledged` whether the broker took it (it does
    not say so with QoS 0), `subscribed` whether anybody was subscribed to its topic then. `acknowledged_at` is in
    microseconds since the epoch on the store's clock.
    """

    published: bool | None = None
    acknowledged: bool | None = None
    subscribed: bool | None = None
    acknowledged_at: int | None = None


NOTHING_KNOWN: Final = DeliveryProgress()
"""The progress of a command whose home node died or was restarted: the node's knowledge went with it."""
NEVER_LEFT: Final = DeliveryProgress(published=False, acknowledged=False)


def timed_out(reach: DeliveryProgress) -> bytes:
    """The error of a command that has timed out, as its record has it."""
    return fault(TIMED_OUT, _sentence(reach), known=_known(reach))


def _sentence(reach: DeliveryProgress) -> str:
    """The first that holds."""
    if reach.published is None:
        return "no answer came in time, and it is not known whether it was sent: its home node did not say so"
    if not reach.published:
        return "it was not handed over to the MQTT broker in time, so nobody has it"
    if reach.acknowledged is None:
        return "it was sent with QoS 0, which the MQTT broker does not acknowledge, and no answer came in time"
    if not reach.acknowledged:
        return "the MQTT broker did not acknowledge it in time: it may or may not have been delivered"
    if reach.subscribed is False:
        return "the MQTT broker acknowledged it, and nobody was subscribed to its topic"
    return "the MQTT broker acknowledged it, and no answer came in time"


def _known(reach: DeliveryProgress) -> dict[str, Any]:
    subscribers = {True: "some", False: "none", None: "unknown"}[reach.subscribed]
    at = None if reach.acknowledged_at is None else datetime.fromtimestamp(reach.acknowledged_at / 1_000_000, UTC)
    return {
        "published": reach.published,
        "acknowledged": reach.acknowledged,
        "acknowledged_at": None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "subscribers": subscribers,
    }
