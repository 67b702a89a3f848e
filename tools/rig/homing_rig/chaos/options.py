"""Options of the rig."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.core.errors import ConfigurationError, HomingError

SHARE_GROUP: Final = "chaos"
MAX_SEED: Final = 2**63 - 1


class ChaosError(HomingError):
    """Something that the rig needs could not be started, or ended on its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChaosOptions:
    """One run of one scenario. What is None is as the scenario has it. ConfigurationError names the option."""

    scenario: str
    seed: int = 1
    """Decides every fault, delay and choice of a node; what the machine does with them, it cannot."""
    seconds: float | None = None
    """The time that load and faults last."""
    commands: int | None = None
    """Ends the load after that many commands instead."""
    nodes: int | None = None
    rate: float | None = None
    """Commands offered per second."""
    schedule: Path | None = None
    """A file with the faults, in place of those from the seed."""
    short: bool = False
    """The form for every test run: seconds instead of minutes, and only the figures of correctness."""
    out: Path | None = None
    """The folder for history, logs and report; a temporary one when None."""
    node_command: tuple[str, ...] = (sys.executable, "-m", "app.cli", "serve")
    """Starts a node that reads its settings from the environment."""
    forked: bool = False
    """True if nodes are forked from a process that has loaded Homing, where that is the same: for tests."""
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the nodes, HOMING_…"""
    access: bool = False
    """True if the nodes ask for keys, and keep an audit."""
    up: bool = False
    """True if one `homing up` is all there is: node, broker and store in one process and one folder."""
    latency_log: Path | None = None
    """The folder in which the nodes leave their latency log, an absolute path; none when None."""

    @property
    def command(self) -> str:
        """The command line that asks for the same again."""
        words = ["homing chaos --scenario", self.scenario, f"--seed {self.seed}"]
        given = {name: getattr(self, name) for name in ("seconds", "commands", "nodes", "rate", "schedule")}
        words += [f"--{name} {value}" for name, value in given.items() if value is not None]
        words += [] if self.latency_log is None else [f"--latency-log {self.latency_log}"]
        words += ["--access"] if self.access else []
        words += ["--up"] if self.up else []
        return " ".join([*words, *(["--short"] if self.short else [])])

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigurationError(f"seed: {self.seed}; allowed are 0 to {MAX_SEED}")
        _check("seconds", self.seconds, 1, 86_400)
        _check("commands", self.commands, 1, 100_000_000)
        _check("nodes", self.nodes, 1, 9)
        _check("rate", self.rate, 1, 10_000)
        if self.up and (self.access or self.nodes not in (None, 1)):
            raise ConfigurationError("up: one `homing up` is one node, and asks for no keys here")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise ConfigurationError(f"out: {self.out} is no folder")


def _check(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise ConfigurationError(f"{name}: {value:g}; allowed are {least:g} to {most:g}")
