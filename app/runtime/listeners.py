"""Listeners that register when they are made: what they listen to is made before them and knows none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Calls everybody who was added, in that order. An error of one keeps the others from being called."""

    def __init__(self) -> None:
        self._added: list[Callable[P, None]] = []

    def add(self, listener: Callable[P, None]) -> None:
        """Call this one, too, from now on."""
        self._added.append(listener)

    def __call__(self, *facts: P.args, **named: P.kwargs) -> None:
        """Tell all of them."""
        for listener in self._added:
            listener(*facts, **named)
