"""Payload templates: JSON in which strings may name facts of the command.

A string that is one placeholder becomes the fact with its own type (`"{params}"` an object, `"{created_ms}"` a number);
in a longer string placeholders become text. `{params.a.b}` reaches into the params.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.commands.command import Command
from app.core.errors import ConfigurationError
from app.core.identifiers import name_of
from app.core.payload import MISSING, JsonValue, Missing, lookup
from app.core.values import value


@value
class CommandFacts:
    """The facts that a profile may put into a publication. Instants are microseconds on the store's clock.

    `parts` are those of the device id, where the profile says how it is put together.
    """

    command_id: str
    device_id: str
    method: str
    params: JsonValue
    created_at: int
    deadline: int
    parts: Mapping[str, str] | None = None
    held_for: int = 0
    """The microseconds that passed before its timeout began, as it was held."""

    @property
    def timeout(self) -> int:
        """Its timeout in microseconds."""
        return self.deadline - self.created_at - self.held_for


def facts_of(command: Command, params: JsonValue | Missing = MISSING) -> CommandFacts:
    """Return what templates may use of a command on record; `params` are its params where they were read already."""
    return CommandFacts(
        command.id,
        command.device_id,
        command.method,
        json.loads(command.params) if params is MISSING else params,
        command.created_at,
        command.deadline,
        held_for=command.begun_at - command.created_at,
    )


UUID_BYTES: Final = 16

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_.-]+)?)\}")

_LOOKS_LIKE_ONE: Final = re.compile(r"\{[^{}\"':,]*[A-Za-z_][^{}\"':,]*\}")
"""Matches text in braces that is no JSON: a placeholder, or one that was misspelt."""


def rfc3339(microseconds: int) -> str:
    """Microseconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    instant = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def uuid_of(facts: CommandFacts) -> bytes:
    """For devices that take nothing else as an id. It says of itself that it is random (RFC 9562, version 4)."""
    data = bytearray(_digest(facts, UUID_BYTES))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return bytes(data)


def uuid_text(data: bytes) -> str:
    """The bytes of a UUID as people write them."""
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _digest(facts: CommandFacts, size: int) -> bytes:
    return blake2b(facts.command_id.encode(), digest_size=size).digest()


FACTS: Final[dict[str, Callable[[CommandFacts], JsonValue]]] = {
    "id": lambda facts: facts.command_id,
    "device_id": lambda facts: name_of(facts.device_id),
    "method": lambda facts: facts.method,
    "params": lambda facts: facts.params,
    "created_ms": lambda facts: facts.created_at // 1000,
    "deadline_ms": lambda facts: facts.deadline // 1000,
    "deadline": lambda facts: rfc3339(facts.deadline),
    "timeout_ms": lambda facts: facts.timeout // 1000,
    "created_s": lambda facts: facts.created_at // 1_000_000,
    "deadline_s": lambda facts: facts.deadline // 1_000_000,
    "timeout_s": lambda facts: -(-facts.timeout // 1_000_000),  # rounded up: 0 is never meant
    "id_number": lambda facts: int.from_bytes(_digest(facts, 4), "big") >> 1,  # what 32 bits with a sign can hold
    "id_short": lambda facts: _digest(facts, 6).hex(),
    "id_uuid": lambda facts: uuid_text(uuid_of(facts)),
}

INSTANTS: Final = frozenset(name for name in FACTS if name.startswith(("created", "deadline", "timeout")))
"""The facts that are known only when the command is on record."""

IDS: Final = frozenset({"id", "id_number", "id_short", "id_uuid"})
"""The facts that tell a command from all others of its device. The digests of the id are for devices that take no text
of 30 letters."""


def check(template: JsonValue, parts: Collection[str] = ()) -> None:
    """Raise ConfigurationError when the template names a fact that there is not, or seems to and is no placeholder.

    `parts` are those of the device id.
    """
    if isinstance(template, dict):
        for key, value in template.items():
            if (found := _LOOKS_LIKE_ONE.search(key)) is not None:
                raise ConfigurationError(f"{found[0]} stands in the name of a member, where nothing is filled in")
            check(value, parts)
    elif isinstance(template, list):
        for value in template:
            check(value, parts)
    elif isinstance(template, str):
        for found in _LOOKS_LIKE_ONE.findall(template):
            placeholder = _PLACEHOLDER.fullmatch(found)
            if placeholder is None or not is_fact(placeholder[1], parts):
                known = ", ".join(f"{{{fact}}}" for fact in (*FACTS, *parts))
                raise ConfigurationError(f"{found} is unknown; allowed: {known}, {{params.…}}")
    elif isinstance(template, float) and not math.isfinite(template):
        raise ConfigurationError(f"{template} is no number of JSON")


def is_fact(name: str, parts: Collection[str] = ()) -> bool:
    """True if a command has this: a fact, something in its params, or a part of its device id."""
    return name in FACTS or name.startswith("params.") or name in parts


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
        if (whole := _whole(template)) is not None:
            return _fact(whole, facts)
        return _PLACEHOLDER.sub(lambda found: str(_fact(found[1], facts)), template)
    if isinstance(template, dict):
        return {key: render(value, facts) for key, value in template.items()}
    if isinstance(template, list):
        return [render(value, facts) for value in template]
    return template


@lru_cache(maxsize=1024)  # as many strings as profiles have
def _whole(template: str) -> str | None:
    """The name when the template is one placeholder."""
    found = _PLACEHOLDER.fullmatch(template)
    return None if found is None else found[1]


def render_present(template: JsonValue, facts: CommandFacts) -> JsonValue:
    """As `render`, without the members and elements that are one placeholder, and absent or null."""
    if isinstance(template, dict):
        return {key: render_present(one, facts) for key, one in template.items() if not _left_out(one, facts)}
    if isinstance(template, list):
        return [render_present(one, facts) for one in template if not _left_out(one, facts)]
    return render(template, facts)


def _left_out(template: JsonValue, facts: CommandFacts) -> bool:
    return isinstance(template, str) and _whole(template) is not None and any_absent(template, facts)


def level_text(name: str, facts: CommandFacts) -> str | None:
    """A fact as a level of a topic has it; None when it is absent, or neither text, a number, true nor false."""
    return scalar_text(_fact(name, facts))


def scalar_text(found: object) -> str | None:
    """Text, numbers, true and false as one text, where 21 and 21.0 are the same; None of anything else."""
    match found:
        case str():
            return found
        case bool():
            return "true" if found else "false"
        case int():
            return str(found)
        case float():
            return str(int(found)) if found.is_integer() else repr(found)
        case _:
            return None


def any_absent(template: str, facts: CommandFacts) -> bool:
    """True if the template names something that the command does not have; null is not there either."""
    return any(_fact(name, facts) is None for name in _PLACEHOLDER.findall(template))


def _fact(name: str, facts: CommandFacts) -> JsonValue:
    fact = FACTS.get(name)
    if fact is not None:
        return fact(facts)
    if facts.parts is not None and name in facts.parts:
        return facts.parts[name]
    found = lookup(facts.params, _way_into_params(name))
    return None if found is MISSING else found


@lru_cache(maxsize=1024)  # as many names as profiles have
def _way_into_params(name: str) -> tuple[str, ...]:
    """The keys that `params.a.b` leads along."""
    return tuple(name.split(".")[1:])
