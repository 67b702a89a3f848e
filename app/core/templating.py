"""Payload templates: JSON in which strings may name facts of the command.

A string that is one placeholder becomes the fact with its own type (`"{params}"` an object, `"{created_ms}"` a number);
in a longer string placeholders become text. `{params.a.b}` reaches into the params.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from app.core.errors import ConfigurationError
from app.core.payload import MISSING, JsonValue, lookup


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What a profile may put into a publication. Instants are microseconds since the epoch on the store's clock."""

    command_id: str
    device_id: str
    method: str
    params: JsonValue
    created_at: int
    deadline: int


_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_.-]+)?)\}")

_LOOKS_LIKE_ONE: Final = re.compile(r"\{[^{}\"':,]*[A-Za-z_][^{}\"':,]*\}")
"""What stands in braces and is no JSON: a placeholder, or one that was misspelt."""


def _rfc3339(microseconds: int) -> str:
    instant = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


FACTS: Final[dict[str, Callable[[CommandFacts], JsonValue]]] = {
    "id": lambda facts: facts.command_id,
    "device_id": lambda facts: facts.device_id,
    "method": lambda facts: facts.method,
    "params": lambda facts: facts.params,
    "created_ms": lambda facts: facts.created_at // 1000,
    "deadline_ms": lambda facts: facts.deadline // 1000,
    "deadline": lambda facts: _rfc3339(facts.deadline),
    "timeout_ms": lambda facts: (facts.deadline - facts.created_at) // 1000,
}


def check(template: JsonValue) -> None:
    """Raise ConfigurationError when the template names a fact that there is not, or seems to and is no placeholder."""
    if isinstance(template, dict):
        for key, value in template.items():
            if (found := _LOOKS_LIKE_ONE.search(key)) is not None:
                raise ConfigurationError(f"{found[0]} stands in the name of a member, where nothing is filled in")
            check(value)
    elif isinstance(template, list):
        for value in template:
            check(value)
    elif isinstance(template, str):
        for found in _LOOKS_LIKE_ONE.findall(template):
            placeholder = _PLACEHOLDER.fullmatch(found)
            if placeholder is None or (placeholder[1] not in FACTS and not placeholder[1].startswith("params.")):
                known = ", ".join(f"{{{fact}}}" for fact in FACTS)
                raise ConfigurationError(f"{found} is unknown; allowed: {known}, {{params.…}}")
    elif isinstance(template, float) and not math.isfinite(template):
        raise ConfigurationError(f"{template} is no number of JSON")


def names_in(template: JsonValue) -> set[str]:
    """The facts that the template names, such as `id` or `params.flight_id`."""
    if isinstance(template, dict):
        return set().union(*(names_in(value) for value in template.values()))
    if isinstance(template, list):
        return set().union(*(names_in(value) for value in template))
    return set(_PLACEHOLDER.findall(template)) if isinstance(template, str) else set()


def render(template: JsonValue, facts: CommandFacts) -> JsonValue:
    """Fill in the facts; an absent `{params.…}` becomes None."""
    if isinstance(template, str):
        if "{" not in template:
            return template
        if whole := _PLACEHOLDER.fullmatch(template):
            return _fact(whole[1], facts)
        return _PLACEHOLDER.sub(lambda found: str(_fact(found[1], facts)), template)
    if isinstance(template, dict):
        return {key: render(value, facts) for key, value in template.items()}
    if isinstance(template, list):
        return [render(value, facts) for value in template]
    return template


def any_absent(template: str, facts: CommandFacts) -> bool:
    """Whether the template names something that the command does not have; null is not there either."""
    return any(_fact(name, facts) is None for name in _PLACEHOLDER.findall(template))


def _fact(name: str, facts: CommandFacts) -> JsonValue:
    fact = FACTS.get(name)
    if fact is not None:
        return fact(facts)
    found = lookup(facts.params, tuple(name.split(".")[1:]))
    return None if found is MISSING else found
