"""A trial of a profile that is a text, in a process of its own: what it says may take all time and memory there are.

`python -m app.profiles.tools.draft BYTES` reads a JSON object and writes one; the process may take so much memory.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import command_id, validate_device_id, validate_method
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import hints_of, parse_profile
from app.profiles.tools.examples import example_device, example_method, example_params
from app.profiles.tools.trial import published, reading, refusal, replied, replies_of, rules_of, unasked, with_ids

SOURCE: Final = "profile.toml"
CPU_SECONDS: Final = 3
MOST_LINES: Final = 200
MOST_LINE: Final = 2000
TIMEOUT_US: Final = 10_000_000


def try_draft(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `asked["toml"]` is: its faults, or what it makes of a command and of what a device says.

    `device_id`, `method` and `params` are of the command, each an example by default. `payload` is what the device
    says on `topic`, by default where answers to the command are expected. `now` is in µs, `ulid` is of the command.
    InvalidInputError for what is wrong besides the text.
    """
    text = asked["toml"]
    try:
        profile = parse_profile(text, SOURCE)
    except ConfigurationError as error:
        return _answer(faults=str(error).splitlines())
    facts = _facts(profile, asked)
    tried = refusal(profile, facts) is None
    said, answers = _heard(profile, facts, asked)
    return _answer(
        name=profile.name,
        hints=hints_of(text, SOURCE),
        command={"device_id": facts.device_id, "method": facts.method, "params": facts.params},
        publishes=published(profile, facts),
        accepted=tried,
        reads=[*rules_of(profile), *replies_of(profile)],
        readings=said,
        answers=answers,
    )


def _answer(
    *,
    name: str | None = None,
    faults: Iterable[str] = (),
    hints: Iterable[str] = (),
    command: Mapping[str, Any] | None = None,
    publishes: Iterable[str] = (),
    accepted: bool = False,
    reads: Iterable[str] = (),
    readings: Iterable[str] = (),
    answers: bool | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "faults": _cut(faults),
        "hints": _cut(hints),
        "command": command,
        "accepted": accepted,
        "publishes": _cut(publishes),
        "reads": _cut(reads),
        "readings": _cut(readings),
        "answers": answers,
    }


def _cut(lines: Iterable[str]) -> list[str]:
    return [one if len(one) <= MOST_LINE else f"{one[:MOST_LINE]} …" for one in islice(lines, MOST_LINES)]


def _facts(profile: DeviceProfile, asked: Mapping[str, Any]) -> CommandFacts:
    method = validate_method(asked["method"] or example_method(profile))
    device = validate_device_id(asked["device_id"] or example_device(profile))
    params = example_params(profile, method) if asked["params"] is None else asked["params"]
    now = int(asked["now"])
    return CommandFacts(command_id(device, asked["ulid"]), device, method, params, now, now + TIMEOUT_US)


def _heard(profile: DeviceProfile, facts: CommandFacts, asked: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    if asked["payload"] is None:
        return [], None
    topic, payload = asked["topic"], with_ids(facts, asked["payload"]).encode()
    said, answers = reading(profile, facts, topic, payload)
    if topic is None:
        return said, answers
    besides = [*unasked(profile, topic, payload), *replied(profile, facts, topic, payload)]
    return (besides if besides and not answers else [*said, *besides]), answers


def main() -> None:
    """Answer one question."""
    memory = int(sys.argv[1])
    with suppress(ValueError, OSError):  # not everywhere can memory be bounded
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    try:
        answer: Mapping[str, Any] = try_draft(json.load(sys.stdin))
    except InvalidInputError as error:
        answer = {"invalid": [error.field, error.reason]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
