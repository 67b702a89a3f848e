"""Dead letters: a line of JSON that says what happened, then the original as it was."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from app.core.events.event import OWN, Entry, Event
from app.core.queues.loans import Dying

DEAD: Final = f"{OWN}dead/"
"""The beginning of the topics of dead letters."""
MOST_REASON: Final = 512


class DeadLetter(NamedTuple):
    """A dead letter. `about` says queue, reason, deliveries, consumer and origin; `original` is the event itself."""

    about: dict[str, Any]
    original: Event


def letter_entry(topic: str, queue: str, dying: Dying, original: Event | None) -> Entry:
    """The dead letter of an event; without the original where the log does not have it any more.

    A letter that was redriven and died again keeps the origin of the first one.
    """
    before = None if original is None else read_letter(original)
    event = original if before is None else before.original
    origin: dict[str, Any] = {"database": dying.source.shard.database, "shard": dying.source.shard.number}
    origin |= {"position": dying.reference.position}
    if before is not None:
        origin = before.about["origin"]
    elif event is not None:
        entry = event.entry
        origin |= {"topic": entry.topic, "device": entry.device, "kind": entry.kind, "id": entry.id}
    about = {
        "queue": queue,
        "reason": dying.reason[:MOST_REASON],
        "deliveries": dying.deliveries,
        "consumer": dying.consumer,
        "origin": origin,
    }
    name = f"{origin['database']}.{origin['shard']}.{origin['position']}"
    value = json.dumps(about, separators=(",", ":")).encode() + b"\n" + (b"" if event is None else event.entry.value)
    device, kind = ("", "") if event is None else (event.entry.device, event.entry.kind)
    return Entry(topic, value, device, kind, name)


def read_letter(event: Event) -> DeadLetter | None:
    """The letter that an event is; None where it is none. Nobody but Homing says something on the topics of letters."""
    head, newline, value = event.entry.value.partition(b"\n")
    if not event.entry.topic.startswith(DEAD) or not newline or not head.startswith(b'{"queue":'):
        return None
    try:
        about = json.loads(head)
        origin = about["origin"]
        entry = Entry(
            origin.get("topic", event.entry.topic),
            value,
            origin.get("device", ""),
            origin.get("kind", ""),
            origin.get("id", ""),
        )
        return DeadLetter(about, Event(int(origin["position"]), int(origin["shard"]), entry))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
