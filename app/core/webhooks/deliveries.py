"""Deliveries to an endpoint, and how it stands with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.core.webhooks.endpoints import Endpoint, EventType
from app.core.webhooks.schedule import Reply, next_attempt

MOST_WAITING: Final = 100_000
"""The number of events that may wait for one endpoint; what comes then is dropped, and counted."""
MOST_KEPT: Final = 1_000
"""The number of ended deliveries of an endpoint that can be looked at."""
KEPT_US: Final = 3 * 24 * 3_600_000_000
"""The time for which an ended delivery is kept, in microseconds."""


class Progress(StrEnum):
    """The state of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


class Tidings(StrEnum):
    """The news of a command of which endpoints are told."""

    OUTCOME = "outcome"
    LATE = "late"
    VERIFIED = "verified"
    ASKED = "asked"
    """A second person is asked to approve it."""

    @property
    def sequence(self) -> int:
        """The number of the event. Of those behind the outcome either may come first; the lowest waits for none."""
        return _SEQUENCES[self]


_SEQUENCES: Final = {Tidings.ASKED: 0, Tidings.OUTCOME: 1, Tidings.LATE: 2, Tidings.VERIFIED: 3}


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A command of which endpoints are to be told something, as the store's outbox has it."""

    command_id: str
    tidings: Tidings = Tidings.OUTCOME

    @property
    def member(self) -> str:
        """The notice as a text."""
        return f"{self.command_id} {self.tidings}"

    @classmethod
    def read(cls, member: str) -> OutboxEntry:
        """The notice that the text stands for; those of a later version are told as outcomes, which are known."""
        command_id, _, what = member.partition(" ")
        return cls(command_id, Tidings(what) if what in _WORDS else Tidings.OUTCOME)


_WORDS: Final = frozenset(Tidings)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one endpoint. `body` is what is sent, byte for byte, on each attempt; instants in µs."""

    event_id: str
    type: EventType
    body: bytes
    created_at: int
    attempts: int = 0
    progress: Progress = Progress.WAITING
    status: int | None = None
    """HTTP status of the last attempt."""
    reason: str = ""
    """The reason why the last attempt failed, in words."""
    attempted_at: int | None = None
    next_at: int | None = None

    @property
    def delay(self) -> int | None:
        """The time to wait after the last attempt (µs); None when it is not tried again."""
        return None if self.next_at is None or self.attempted_at is None else self.next_at - self.attempted_at

    def after(self, reply: Reply, now: int, random: float) -> Delivery:
        """As it stands after an attempt; `random` is from 0 to 1."""
        tried = replace(
            self,
            attempts=self.attempts + 1,
            status=reply.status,
            reason=reply.reason,
            attempted_at=now,
            next_at=None,
        )
        if reply.delivered:
            return replace(tried, progress=Progress.DELIVERED)
        again = next_attempt(tried.attempts, now, random, reply.retry_after)
        if again is None or reply.gone:
            return replace(tried, progress=Progress.GIVEN_UP)
        return replace(tried, next_at=again)


EVENT: Final = "evt_[0-9A-Za-z_-]{1,80}"
"""The form of the ids of events."""
FIRST_ENDING: Final = f"_{Tidings.OUTCOME.sequence}"
"""The end of the id of the event that is delivered before the others of its command."""
LATER_ENDINGS: Final = tuple(f"_{one.sequence}" for one in (Tidings.LATE, Tidings.VERIFIED))


def event_id(notice: OutboxEntry) -> str:
    """The id of the event: the same on each attempt."""
    return f"evt_{notice.command_id}_{notice.tidings.sequence}"


def before(identity: str) -> str | None:
    """The event that is delivered before this one, if there is one."""
    ending = next((one for one in LATER_ENDINGS if identity.endswith(one)), None)
    return None if ending is None else identity.removesuffix(ending) + FIRST_ENDING


def after(identity: str) -> tuple[str, ...]:
    """The events that are delivered after this one, if it is the first of its command."""
    if not identity.endswith(FIRST_ENDING):
        return ()
    return tuple(identity.removesuffix(FIRST_ENDING) + ending for ending in LATER_ENDINGS)


_VERSION: Final = 1


def encode_delivery(one: Delivery) -> bytes:
    """As the store keeps it."""
    return _dump(
        {
            "v": _VERSION,
            "id": one.event_id,
            "type": one.type,
            "body": one.body.decode(),
            "created": one.created_at,
            "attempts": one.attempts,
            "progress": one.progress,
            "status": one.status,
            "reason": one.reason,
            "attempted": one.attempted_at,
            "next": one.next_at,
        }
    )


def decode_delivery(data: bytes) -> Delivery:
    """Decode what `encode_delivery` wrote; ValueError, KeyError or TypeError for anything else."""
    found: dict[str, Any] = json.loads(data)
    return Delivery(
        event_id=found["id"],
        type=EventType(found["type"]),
        body=found["body"].encode(),
        created_at=found["created"],
        attempts=found["attempts"],
        progress=Progress(found["progress"]),
        status=found["status"],
        reason=found["reason"],
        attempted_at=found["attempted"],
        next_at=found["next"],
    )


def encode_endpoint(one: Endpoint) -> bytes:
    """As the store keeps it. The same endpoint has always the same bytes."""
    return _dump(
        {
            "v": _VERSION,
            "id": one.id,
            "tenant": one.tenant,
            "url": one.url,
            "events": sorted(one.events),
            "devices": one.devices,
            "methods": one.methods,
            "created": one.created_at,
            "root": one.root,
            "epoch": one.epoch,
            "rotated": one.rotated_at,
            "disabled": one.disabled_at,
            "why": one.disabled_reason,
            # 0.2.0 compares an endpoint byte for byte when it writes it, and knows of no queues.
            **({"queue": one.queue, "batch": one.batch} if one.queue else {}),
        }
    )


def decode_endpoint(data: bytes) -> Endpoint:
    """Decode what `encode_endpoint` wrote; ValueError, KeyError or TypeError for anything else."""
    found: dict[str, Any] = json.loads(data)
    return Endpoint(
        id=found["id"],
        tenant=found["tenant"],
        url=found["url"],
        events=frozenset(EventType(name) for name in found["events"]),
        devices=found["devices"],
        methods=found["methods"],
        created_at=found["created"],
        root=found["root"],
        epoch=found["epoch"],
        rotated_at=found["rotated"],
        disabled_at=found["disabled"],
        disabled_reason=found["why"],
        queue=found.get("queue", ""),
        batch=found.get("batch", 0),
    )


def _dump(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
