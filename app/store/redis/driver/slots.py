"""The slots of a Redis Cluster: which one a key has, and who serves which. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from redis.crc import key_slot

from app.core.redis_address import Place

SLOTS: Final = 16_384
NO_SLOT: Final = -1
"""The slot of calls that any member serves."""


def tag_of(key: str) -> str:
    """The part of the key by which its slot is chosen: what stands between the first braces, or all of it."""
    begin = key.find("{") + 1
    end = key.find("}", begin)
    return key[begin:end] if begin and end > begin else key


def slot_of(key: str | bytes | int) -> int:
    """The slot of a key."""
    return _slot_of_tag(tag_of(key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)))


def guard_of(key: str) -> str:
    """A key in the same slot that never exists.

    Every script names it. While a slot moves, Redis refuses a call as soon as it names a key that is not there, so no
    script ever begins in such a slot, and none is stopped at a key that it has not named.
    """
    return f"mqtt:guard:{{{tag_of(key)}}}"


@lru_cache(maxsize=8192)
def _slot_of_tag(tag: str) -> int:
    return key_slot(tag.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class SlotMap:
    """The primary of each slot, None where nobody serves it, and the replicas."""

    owners: tuple[Place | None, ...]
    replicas: frozenset[Place] = frozenset()

    @cached_property
    def primaries(self) -> tuple[Place, ...]:
        """The members that serve a slot, in the order of their first one."""
        return tuple(dict.fromkeys(one for one in self.owners if one is not None))

    @cached_property
    def covered(self) -> int:
        """Return how many slots are served."""
        return sum(one is not None for one in self.owners)

    @property
    def whole(self) -> bool:
        """True if each slot is served."""
        return self.covered == SLOTS

    def moved(self, places: Mapping[int, Place]) -> SlotMap:
        """The same, with these slots elsewhere."""
        owners = list(self.owners)
        for slot, place in places.items():
            owners[slot] = place
        return SlotMap(tuple(owners), self.replicas)


def parse_slots(reply: Sequence[Any], asked: Place) -> SlotMap:
    """The reply of CLUSTER SLOTS by the member that was asked; ValueError when it is none."""
    owners: list[Place | None] = [None] * SLOTS
    replicas: set[Place] = set()
    try:
        for first, last, primary, *others in reply:
            place = _place(primary, asked)
            owners[int(first) : int(last) + 1] = [place] * (int(last) + 1 - int(first))
            replicas.update(one for other in others if (one := _place(other, asked)) is not None)
    except (TypeError, IndexError, ValueError, AttributeError):
        raise ValueError("its answer to CLUSTER SLOTS cannot be read") from None
    if len(owners) != SLOTS:
        raise ValueError("its answer to CLUSTER SLOTS has other slots")
    return SlotMap(tuple(owners), frozenset(replicas))


def _place(node: Sequence[Any], asked: Place) -> Place | None:
    """An address as a member tells it. Without a host it is the one that was asked; None where it is not known."""
    host = node[0] or asked[0]
    name = host.decode() if isinstance(host, bytes) else str(host)
    return None if name == "?" else (name, int(node[1]))
