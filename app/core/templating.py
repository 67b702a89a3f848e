"""Payload templates: JSON in which strings may name facts of the command.

A string that is one placeholder becomes the fact with its own type (`"{params}"` an object, `"{created_ms}"` a number);
in a longer string placeholders become text. `{params.a.b}` reaches into the params.
"""

from __future__ import annotations

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
    """Raise ConfigurationError when the template names a fact that there is not."""
    if isinstance(template, dict):
        for value in template.values():
            check(value)
    elif isinstance(template, list):
        for value in template:
            check(value)
    elif isinstance(template, str):
        for name in _PLACEHOLDER.findall(template):
            if name not in FACTS and not name.startswith("params."):
                known = ", ".join(f"{{{fact}}}" for fact in FACTS)
                raise ConfigurationError(f"{{{name}}} is unknown; allowed: {known}, {{params.…}}")


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


def _fact(name: str, facts: CommandFacts) -> JsonValue:
    fact = FACTS.get(name)
    if fact is not None:
        return fact(facts)
    found = lookup(facts.params, tuple(name.split(".")[1:]))
    return None if found is MISSING else found
