"""The verdicts of a consumer on events that it was lent, as they come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.api.v1 import queue_models as models
from app.api.v1.queue_models import duration_of
from app.core.errors import InvalidInputError
from app.core.queues.loans import SettleHow, micros_of, parse_token
from app.core.queues.model import LONGEST
from app.queues.settler import TokenSettlement


class ToldSettlement(NamedTuple):
    """The verdicts of one call: on loans that may be, and the texts that name none, which are over."""

    known: Sequence[TokenSettlement]
    unknown: Sequence[str]

    @property
    def total(self) -> int:
        """Return how many verdicts there are."""
        return len(self.known) + len(self.unknown)


def settlement_of(body: models.SettleBody) -> ToldSettlement:
    """Return what is said of which event; InvalidInputError when that is too much, or of one event twice."""
    said_of = _said(body)
    if len(said_of) > models.MOST_SETTLED:
        raise InvalidInputError("body", f"settles {len(said_of)} events; allowed are {models.MOST_SETTLED}")
    seen: set[str] = set()
    for field, text, _, _, _ in said_of:
        if text in seen:
            raise InvalidInputError(field, f"{text[:64]!a} is given twice; allowed: one word about each event")
        seen.add(text)
    known, unknown = list[TokenSettlement](), list[str]()
    for _, text, how, amount, reason in said_of:
        token = parse_token(text)
        if token is None:
            unknown.append(text[:128])
        else:
            known.append(TokenSettlement(token, how, amount, reason))
    return ToldSettlement(known, unknown)


def _said(body: models.SettleBody) -> list[tuple[str, str, SettleHow, int, str]]:
    """Yield of each event that is named the field, its token, how it is settled, µs and reason."""
    found = [(f"done.{at}", one, SettleHow.DONE, -1, "") for at, one in enumerate(body.done)]
    found += [(f"release.{at}", one, SettleHow.RELEASE, -1, "") for at, one in enumerate(body.release)]
    for at, later in enumerate(body.retry):
        after = -1 if later.after is None else _bounded(f"retry.{at}.after", later.after)
        found.append((f"retry.{at}", later.loan, SettleHow.RETRY, after, ""))
    found += [
        (f"dead.{at}", one.loan, SettleHow.DEAD, -1, one.reason or "rejected") for at, one in enumerate(body.dead)
    ]
    for at, longer in enumerate(body.extend):
        by = _bounded(f"extend.{at}.by", longer.by)
        found.append((f"extend.{at}", longer.loan, SettleHow.EXTEND, by, ""))
    return found


def _bounded(field: str, text: str) -> int:
    duration = duration_of(field, text)
    if duration > LONGEST:
        raise InvalidInputError(field, f"{text[:32]} is too long; allowed: up to 12h")
    return micros_of(duration)
