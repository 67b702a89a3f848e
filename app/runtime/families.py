"""Names of metrics: a family for each, and for each subject the table that says which counter goes into which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram", "info"]


class Family(NamedTuple):
    """A metric: its name (counters get `_total` in the output, infos `_info`), what it is about, and its labels."""

    name: str
    kind: Kind
    about: str
    labels: Labels = ()

    @property
    def shown(self) -> str:
        """The name as dashboards use it."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


def counted(name: str, about: str, *labels: str) -> Family:
    """A family of counters."""
    return Family(name, "counter", about, labels)


@dataclass(frozen=True, slots=True)
class CounterTable:
    """The counters of one subject."""

    named: Sequence[tuple[Family, Mapping[str, str]]] = ()
    """Families, each with the names of its counters; each name has the value of the label, where there is one."""
    prefixed: Mapping[str, Family] = field(default_factory=dict)
    """Families by a prefix such as `drop.`; the rest of a counter's name is split at dots into the labels' values."""
    at_zero: Sequence[str] = ()
    """Counters with such a prefix that are shown before they have counted: an increase from nothing cannot be seen."""

    def families(self) -> Iterator[Family]:
        """All families of the subject."""
        yield from (family for family, _ in self.named)
        yield from dict.fromkeys(self.prefixed.values())

    def place_of(self, counter: str) -> tuple[Family, Labels] | None:
        """The family of a counter and the values of its labels; None for a counter of another subject."""
        for family, names in self.named:
            if counter in names:
                return family, (names[counter],) if family.labels else ()
        for prefix, family in self.prefixed.items():
            if counter.startswith(prefix):
                return family, tuple(counter.removeprefix(prefix).split(".", len(family.labels) - 1))
        return None

    def names(self) -> Iterator[str]:
        """All counters that are always shown."""
        yield from (name for _, names in self.named for name in names)
        yield from self.at_zero
