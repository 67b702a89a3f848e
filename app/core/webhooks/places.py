"""A place in the list of deliveries: those that wait, the next one first, then those that ended, the last one first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.errors import InvalidInputError
from app.core.webhooks.deliveries import EVENT, Delivery

_PLACE: Final = re.compile(rf"(waiting|ended)\.([0-9]{{1,16}})\.({EVENT})", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeliveryPosition:
    """The position of one delivery in the list."""

    ended: bool
    at: int
    """The instant at which it is due, or when it ended (µs of the store's clock)."""
    event_id: str

    def text(self, endpoint_id: str) -> str:
        """The position, as a cursor has it."""
        return f"{endpoint_id}.{'ended' if self.ended else 'waiting'}.{self.at}.{self.event_id}"

    def follows(self, other: DeliveryPosition) -> bool:
        """True if it comes behind the other one in the list."""
        if self.ended != other.ended:
            return self.ended
        mine, its = (self.at, self.event_id), (other.at, other.event_id)
        return mine < its if self.ended else mine > its


FIRST: Final = DeliveryPosition(ended=False, at=-1, event_id="")
"""The place before all deliveries."""
FIRST_ENDED: Final = DeliveryPosition(ended=True, at=10**16 - 1, event_id="~")
"""The place before all deliveries that ended, and behind all that wait."""


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """A part of the list. `behind` is the position of its last one if there are more."""

    deliveries: Sequence[Delivery]
    behind: DeliveryPosition | None


def part(places: Sequence[DeliveryPosition], limit: int) -> tuple[Sequence[DeliveryPosition], DeliveryPosition | None]:
    """The first `limit` of places that are in order, and the last of these if there are more."""
    shown = places[:limit]
    return shown, shown[-1] if len(places) > limit else None


def place_of(endpoint_id: str, text: str) -> DeliveryPosition:
    """The position that `DeliveryPosition.text` wrote for this endpoint; InvalidInputError for anything else."""
    found = _PLACE.fullmatch(text.removeprefix(f"{endpoint_id}."))
    if found is None or not text.startswith(f"{endpoint_id}."):
        raise InvalidInputError("cursor", "is none of this webhook; leave it out to begin anew")
    return DeliveryPosition(found[1] == "ended", int(found[2]), found[3])
