"""The tables of a profile file for its catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from app.core.profiles.catalogue import Catalogue, Danger, Method, Openness
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import DURATION_SCHEMA, MethodName, StrictTable, duration_between
from app.profiles.schemas import compiled


def _schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    compiled(schema)
    return schema


class MethodTable(StrictTable):
    """`[[method]]`."""

    name: MethodName
    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(max_length=1000)] = ""
    danger: Literal["low", "high"] = "low"
    usual: (
        Annotated[
            timedelta, BeforeValidator(duration_between(timedelta(milliseconds=1), timedelta(days=30))), DURATION_SCHEMA
        ]
        | None
    ) = None
    params: Annotated[dict[str, JsonValue], AfterValidator(_schema)] | None = None

    def build(self) -> Method:
        """The method that the table describes."""
        check = None if self.params is None else compiled(self.params)
        return Method(self.name, self.title, self.description, Danger(self.danger), self.usual, self.params, check)


def catalogue_of(openness: str, tables: Sequence[MethodTable]) -> Catalogue:
    """The catalogue of a file."""
    return Catalogue({one.name: one.build() for one in tables}, Openness(openness))


def catalogue_faults(openness: str, tables: Sequence[MethodTable], used: Iterable[str]) -> Iterator[ProfileFault]:
    """Return what is wrong with it in its file; `used` are the methods that requests and responses name."""
    seen: set[str] = set()
    for index, table in enumerate(tables):
        if table.name in seen:
            yield ProfileFault(("method", index, "name"), f"{table.name} is there already; allowed: each method once")
        seen.add(table.name)
    if openness != Openness.OPEN and not tables:
        yield ProfileFault(("methods",), f"is {openness!r} without any [[method]]; allowed: 'open', or methods")
    strangers = sorted(set(used) - seen)
    if openness == Openness.CLOSED and tables and strangers:
        yield ProfileFault(
            ("methods",), f"is 'closed', and requests or responses name {', '.join(strangers)}, which it lacks"
        )
