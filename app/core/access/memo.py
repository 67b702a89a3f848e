"""A bounded memory of answers."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

SIZE: Final = 8_192

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """The latest answers, up to `size` of them. It belongs to the event loop: no other thread may use it."""

    __slots__ = ("_answers", "_size", "get")

    def __init__(self, size: int = SIZE) -> None:
        self._answers: Final[dict[K, V]] = {}
        self._size: Final = size
        self.get: Final = self._answers.get  # a method around it would double what it costs

    def __len__(self) -> int:
        return len(self._answers)

    def put(self, key: K, answer: V) -> None:
        """Know the answer, in the place of the older half when there are too many."""
        if len(self._answers) >= self._size and key not in self._answers:
            # One by one, each would have to be looked for among the places of those that are gone.
            for one in list(islice(self._answers, (self._size + 1) // 2)):
                del self._answers[one]
        self._answers[key] = answer
