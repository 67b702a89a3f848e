"""A plane: one subject of a node, in the form in which a node is put together from all of them.

Each subject has one `open_<plane>(kernel, …)`. It returns a value with the parts that others use, and with this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.callbacks.observer import Observer
from app.runtime.services import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """The services that a subject runs on a node, and the observers that it wants to be told about commands."""

    name: str
    services: Sequence[Service] = ()
    """The services in the order in which they start; they stop in the opposite one. They tell of health and of full
    buffers too."""
    observers: Sequence[Observer] = ()
    """Told of everything that happens to commands."""


class HasPlane(Protocol):
    """The value of a subject."""

    @property
    def plane(self) -> Plane:
        """Its plane."""


def services_of(subjects: Iterable[HasPlane | None]) -> list[Service]:
    """The services of all that are there, in their order."""
    return [service for subject in subjects if subject is not None for service in subject.plane.services]


def observers_of(subjects: Iterable[HasPlane | None]) -> list[Observer]:
    """The observers of all that are there."""
    return [observer for subject in subjects if subject is not None for observer in subject.plane.observers]
