"""The coverage of a run: in which states its faults hit commands and nodes, and what the nodes counted.

A simulation that never meets a state proves nothing about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import orjson

from app.core.commands.command import Command, CommandState
from homing_rig.chaos.history import AnswerAcked, Answered, Event, Executed, Fail, Invoke, Ok, OperationKind, Unknown
from homing_rig.simulation.node import SimNode
from homing_rig.simulation.plan import BROKER, OF_NODES, OF_STORE, Trouble, TroubleKind
from homing_rig.simulation.store import StoreHost, at_once
from homing_simulator.families import ECHO


class Stage(StrEnum):
    """The stage that a command has reached."""

    ASKED = "asked"
    """A caller waits for a node that has not registered it."""
    REGISTERED = "registered"
    """On record, and its device has not got it."""
    EXECUTED = "executed"
    """Its device has it, and has not answered."""
    ANSWERING = "answering"
    """The answer has no PUBACK."""
    ANSWERED = "answered"
    """The answer has PUBACK, and is not on record."""
    UNREPORTED = "unreported"
    """The outcome is on record, and a caller still waits."""


class Census:
    """Follows the history of one run. `marks` counts what was met, by a name with two words or three."""

    def __init__(self, store: StoreHost) -> None:
        self.marks: Final = Counter[str]()
        self._store = store
        self._asked: dict[int, Invoke] = {}
        self._stages: dict[str, Stage] = {}
        self._nonces: dict[str, str] = {}
        """The nonces, by the id of the command."""

    def take(self, event: Event) -> None:
        """Learn from the next event of the history."""
        match event:
            case Invoke(kind=OperationKind.COMMAND):
                self._asked[event.op] = event
            case Ok() | Fail() | Unknown():
                self._asked.pop(event.op, None)
            case Executed():
                self._stages.setdefault(event.command_id, Stage.EXECUTED)
            case Answered() if event.state != CommandState.RUNNING:
                self._stages[event.command_id] = Stage.ANSWERING
            case AnswerAcked() if self._stages.get(event.command_id) is Stage.ANSWERING:
                self._stages[event.command_id] = Stage.ANSWERED

    def hit(self, trouble: Trouble, node: SimNode | None) -> None:
        """Count whom a fault hits; call it before the fault takes effect."""
        if node is not None:
            state = node.life.node.state.value if node.running else "away"
            self.marks[f"{trouble.kind} node {state}"] += 1
        if self._store.keys.adoptions():
            self.marks[f"{trouble.kind} adoption under way"] += 1
        everybody = trouble.kind in OF_STORE or trouble.target == BROKER
        for stage in {stage for stage, places in self._open() if everybody or trouble.target in places}:
            self.marks[f"{trouble.kind} command {stage}"] += 1

    def counted(self, counters: Mapping[str, int]) -> None:
        """Add what a node has counted."""
        self.marks.update({f"counter {name}": 1 for name, count in counters.items() if count})

    def _open(self) -> list[tuple[Stage, tuple[str, ...]]]:
        """The stage of each command that somebody waits for, and whom it concerns."""
        found: list[tuple[Stage, tuple[str, ...]]] = []
        waiting = {one.nonce: one for one in self._asked.values()}
        for command in at_once(self._store.commands.get(list(self._store.tokens))):
            if command is None:
                continue
            asked = waiting.pop(self._nonce_of(command), None)
            if not command.state.final:
                stage = self._stages.get(command.id, Stage.REGISTERED)
                found.append((stage, (command.home_node, command.device_id)))
            elif asked is not None:
                found.append((Stage.UNREPORTED, (asked.node, command.device_id)))
        return found + [(Stage.ASKED, (one.node, one.device or "")) for one in waiting.values()]

    def _nonce_of(self, command: Command) -> str:
        nonce = self._nonces.get(command.id)
        if nonce is None:
            nonce = self._nonces[command.id] = str(orjson.loads(command.params).get(ECHO))
        return nonce


def possible() -> list[str]:
    """Marks of faults that a seed may meet, whatever the nodes count."""
    found = [f"{kind} command {stage}" for kind in TroubleKind if kind is not TroubleKind.CLOCK for stage in Stage]
    found += [f"{kind} adoption under way" for kind in TroubleKind]
    return found + [f"{kind} node {state}" for kind in OF_NODES for state in ("starting", "ready", "draining", "away")]
