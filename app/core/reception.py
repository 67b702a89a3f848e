"""Where and when a response came in: what the receiving node knows, and its home node does not.

It travels behind the name of the receiving node, in wake-ups and on record, with blanks between, as node ids have none:
`<node id> <received µs> <correlation, one letter> <bytes of the payload>`. The name stands alone where nobody wants to
know (the latency log is off on the receiving node).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from app.core.callback import Answer, Correlation

_LETTERS: Final = {one: one.value[0] for one in Correlation}
_CORRELATIONS: Final = {letter.encode(): one for one, letter in _LETTERS.items()}


class Reception(NamedTuple):
    """How a response came in. `received_at` is in microseconds since the epoch on the store's clock."""

    received_at: int
    correlation: Correlation
    size: int
    """Of the payload, in bytes."""


def reception_of(answer: Answer) -> Reception | None:
    """How this response came in, where somebody wants to know."""
    if answer.received_at is None:
        return None
    return Reception(answer.received_at, answer.correlation, answer.size)


def encode_reception(reception: Reception | None) -> str:
    """What follows the name of the receiving node: nothing, or a blank and the rest."""
    if reception is None:
        return ""
    return f" {reception.received_at} {_LETTERS[reception.correlation]} {reception.size}"


def decode_receiver(field: bytes) -> tuple[str | None, Reception | None]:
    """Name of the receiving node, None where there is none, and what follows it; ValueError when the name is none.

    Further words are of a later version, and a reception that cannot be read is as good as none: it is only told to
    the latency log.
    """
    if not field:
        return None, None
    name, *rest = field.split(b" ")
    return name.decode("ascii"), _reception(rest) if rest else None


def _reception(words: list[bytes]) -> Reception | None:
    try:
        received_at, letter, size, *_ = words
        return Reception(int(received_at), _CORRELATIONS[letter], int(size))
    except (ValueError, KeyError):
        return None
