"""Messages of devices that answered nothing, and how near each came to being the answer to a command."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

SAME_TOPIC: Final = 3
SAME_DEVICE: Final = 2
IN_TIME: Final = 1
SAME_ID: Final = 3
"""The score of the same id, or of one that differs a little because it was changed on its way."""
NEAR: Final = 4
"""A miss with at least this score says something about the command."""
MOST_EDITS: Final = 2
MOST_GOT: Final = 64
"""The characters of a foreign id that are kept."""


@dataclass(frozen=True, slots=True)
class MissedMessage:
    """A message that came in on `node` and answered nothing, for `reason`.

    `at` is in microseconds since the epoch on that node's clock; `got` is by what it named its command, empty where
    that could not be read, and `device` whose it is, empty likewise.
    """

    at: int
    node: str
    topic: str
    reason: str
    got: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The command that messages are compared with: where it expects its answer, and by which names it would know it."""

    device: str
    names: Collection[str]
    topics: Collection[str]
    since: int
    until: int
    """The end (µs) of the time from `since` in which it was open, with some room for clocks."""


@dataclass(frozen=True, slots=True)
class Near:
    """A miss with its score. `same_topic`, `same_id` (exactly) and `like_id` (nearly) say what fits.

    `same_device` is also that of a message on the command's own topic that did not say whose it is.
    """

    miss: MissedMessage
    score: int
    same_topic: bool
    same_id: bool
    like_id: bool
    same_device: bool
    in_time: bool

    def concerns(self, command_id: str) -> bool:
        """True if it can have to do with the command at all: of its life, and of its device or with its very id.

        Another device may say the same value, as `POWER`, about a command of its own.
        """
        return self.in_time and (self.same_device or alike(self.miss.got, command_id))


def plain(topic: str) -> str:
    """The topic as it is on the wire; kinds of answers that share one have something behind `#`, as no topic has."""
    return topic.partition("#")[0]


def compare(miss: MissedMessage, target: Target) -> Near:
    """Return how near the message came to being the answer."""
    same_topic = miss.topic in target.topics
    same_id = miss.got in target.names and bool(miss.got)
    same_device = miss.device == target.device or (same_topic and not miss.device)
    in_time = target.since <= miss.at <= target.until
    # Others have other ids, and to compare letter by letter takes long.
    like_id = not same_id and (same_topic or same_device) and any(alike(miss.got, name) for name in target.names)
    score = (
        SAME_TOPIC * same_topic
        + SAME_DEVICE * (miss.device == target.device)
        + IN_TIME * in_time
        + SAME_ID * (same_id or like_id)
    )
    return Near(miss, score, same_topic, same_id, like_id, same_device, in_time)


def alike(one: str, other: str) -> bool:
    """True if they differ by a few letters, in case, or as one has something in front or behind."""
    if not one or not other:
        return False
    low, high = one.casefold(), other.casefold()
    shorter, longer = sorted((low, high), key=len)
    half = len(longer) // 2
    return low == high or (len(shorter) > half and shorter in longer) or _edits(low, high) <= MOST_EDITS


def _edits(one: str, other: str) -> int:
    """The edit distance (Levenshtein), or more than MOST_EDITS."""
    if abs(len(one) - len(other)) > MOST_EDITS or max(len(one), len(other)) > MOST_GOT:
        return MOST_EDITS + 1
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, against in enumerate(other, 1):
            line.append(min(before[column] + 1, line[-1] + 1, before[column - 1] + (letter != against)))
        before = line
    return before[-1]
