"""The corpus: what devices of each shipped family say, and what has to be read out of it: one file a family."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from app.core.messages import ReceivedMessage
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import FACTS, IDS, CommandFacts
from app.profiles.loader import load_profiles

FOLDER = Path(__file__).parent / "corpus"
PROFILES = load_profiles(shipped=["all"])
ID = "042-01JCZX0000000000000000000A"
CREATED = 1_732_000_000_500_000


@dataclass(frozen=True)
class Command:
    method: str
    topic: str
    payload: str
    params: str = "null"

    def facts(self, device: str) -> CommandFacts:
        return CommandFacts(ID, device, self.method, json.loads(self.params), CREATED, CREATED + 10_000_000)


@dataclass(frozen=True)
class Frame:
    """One of `state`, `dropped` (with this reason) and `of_another` says what it is."""

    says: str
    topic: str
    payload: str
    command: int = 0
    correlation_data: str | None = None
    user_properties: dict[str, str] = field(default_factory=dict)
    state: str | None = None
    result: str | None = None
    error: str | None = None
    dropped: str | None = None
    of_another: bool = False

    def message(self, ids: Mapping[str, str] | None = None) -> ReceivedMessage:
        """As it is said to the command of these ids, by their names; else to the one that the corpus speaks of."""
        data = None if self.correlation_data is None else bytes_of(filled(self.correlation_data, ids))
        payload = bytes_of(filled(self.payload, ids))
        user = tuple(self.user_properties.items())
        return ReceivedMessage(filled(self.topic, ids), payload, correlation_data=data, user_properties=user)


@dataclass(frozen=True)
class Corpus:
    name: str
    device: str
    commands: list[Command] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    @property
    def profile(self) -> DeviceProfile:
        return PROFILES[self.name]

    def command(self, frame: Frame) -> CommandFacts:
        return self.commands[frame.command].facts(self.device)


def bytes_of(text: str) -> bytes:
    """Return what is no text stands in hexadecimal behind `hex:`, or as a UUID behind `uuid:`."""
    if text.startswith("uuid:"):
        return UUID(text.removeprefix("uuid:")).bytes
    return bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()


def read_corpus(file: Path) -> Corpus:
    data: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    commands = [Command(**one) for one in data["command"]]
    return Corpus(file.stem, data["device"], commands, [Frame(**one) for one in data["frame"]])


def ids_of(command_id: str) -> dict[str, str]:
    """Return what a device may give back of the id of a command."""
    facts = CommandFacts(command_id, "", "", None, 0, 0)
    return {name: str(FACTS[name](facts)) for name in IDS}


def filled(text: str, ids: Mapping[str, str] | None = None) -> str:
    """Return the text with the ids of the command in place of their names."""
    for name, value in (ids_of(ID) if ids is None else ids).items():
        text = text.replace(f"{{{name}}}", value)
    return text


CORPORA = [read_corpus(file) for file in sorted(FOLDER.glob("*.toml"))]
