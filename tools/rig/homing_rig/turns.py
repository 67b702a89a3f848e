"""Turns of what is compared: other programs use the machine as well, for a while more and for a while less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Side = TypeVar("Side")


def in_turns(sides: Sequence[Side], rounds: int) -> Iterator[Side]:
    """Every side once in each round, and each round begins with the next side."""
    for number in range(rounds):
        for place in range(len(sides)):
            yield sides[(place + number) % len(sides)]
