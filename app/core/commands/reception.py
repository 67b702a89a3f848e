"""The place and time at which a response came in: the receiving node knows them, and its home node does not.

It travels behind the name of the receiving node, in wake-ups and on record, with blanks between, as node ids have none:
`<node id> <received µs> <correlation, one letter> <bytes of the payload>`. The instant is 0 where nobody wants to know
it (the latency log is off on the receiving node). 0.1.0 reads just these words, and knows three letters (i, v, o): so
an echo is written as `v`, with `+` in front of the number of bytes, which is the same number to it. What a probe found
is written as an echo, with the finding as a further word, which earlier versions ignore.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from app.core.commands.callback import Answer
from app.core.profiles.correlation import Correlation
from app.core.profiles.probes import ProbeFinding

_LETTERS: Final = {one: one.value[0] for one in Correlation} | {Correlation.ECHO: "v", Correlation.PROBE: "v"}
_UNKNOWN: Final = 0
_ECHO: Final = "+"
_STATES: Final = (Correlation.ECHO, Correlation.PROBE)
_CORRELATIONS: Final = {one.value[0].encode(): one for one in Correlation if one not in _STATES}


class Reception(NamedTuple):
    """The facts of a response's arrival. `received_at` is in microseconds on the store's clock, where noted."""

    received_at: int | None
    correlation: Correlation
    size: int
    """The size of the payload, in bytes."""
    finding: bytes | None = None
    """The finding of a probe, as `ProbeFinding.to_json` writes it, where there was no response."""


def reception_of(answer: Answer) -> Reception:
    """Return how this response came in."""
    return Reception(answer.received_at, answer.correlation, answer.size)


def reception_of_finding(finding: ProbeFinding) -> Reception:
    """Return what stands for the reception where a probe found the outcome."""
    return Reception(None, Correlation.PROBE, finding.size, finding.to_json())


def encode_reception(reception: Reception | None) -> str:
    """Return what follows the name of the receiving node: nothing, or a blank and the rest."""
    if reception is None:
        return ""
    sign = _ECHO if reception.correlation in _STATES else ""
    finding = "" if reception.finding is None else f" {reception.finding.decode('ascii')}"
    return f" {reception.received_at or _UNKNOWN} {_LETTERS[reception.correlation]} {sign}{reception.size}{finding}"


def decode_receiver(field: bytes) -> tuple[str | None, Reception | None]:
    """Name of the receiving node, None where there is none, and what follows it; ValueError when the name is none.

    Further words are of a later version, and a reception that cannot be read is as good as none: no outcome depends
    on it.
    """
    if not field:
        return None, None
    name, *rest = field.split(b" ")
    return name.decode("ascii"), _reception(rest) if rest else None


def _reception(words: list[bytes]) -> Reception | None:
    try:
        received_at, letter, size, *further = words
        if not size.startswith(_ECHO.encode()):
            return Reception(int(received_at) or None, _CORRELATIONS[letter], int(size))
        if not further:
            return Reception(int(received_at) or None, Correlation.ECHO, int(size))
        json.loads(further[0])
        return Reception(int(received_at) or None, Correlation.PROBE, int(size), further[0])
    except (ValueError, KeyError):
        return None
