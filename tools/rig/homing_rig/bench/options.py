"""Options of the benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.core.errors import ConfigurationError, HomingError
from homing_simulator.options import FLEET_PROFILES, MAX_DEVICES

ProgressCallback = Callable[[float, str], None]
"""Called with the part that is done, 0.0 to 1.0, and what is done next."""

MAX_IN_FLIGHT: Final = 4096


class BenchError(HomingError):
    """Something that the benchmark needs could not be started, or ended on its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """Raises ConfigurationError that names the option.

    Without `nodes_url` everything runs privately: Redis, Mosquitto, two nodes, the fleet and the load.
    """

    profile: str = "dji"
    devices: int = 200
    in_flight: int = 128
    """The number of commands that are under way at any time."""
    rounds: int = 3
    """The number of times that reference and cluster take turns."""
    seconds: float = 5.0
    """The time that each takes its turn."""
    commands: int | None = None
    """Ends a turn after that many commands instead."""
    singles: int = 300
    """The number of commands that a turn has when they go one at a time."""
    pending: tuple[int, ...] = ()
    """Also measure beside that many commands that nobody answers, in rising order; empty: not at all."""
    nodes_url: str | None = None
    """The node to load, `http://host:port`, in place of private ones."""
    mqtt_url: str | None = None
    """The broker of that node, where the fleet connects."""
    node_command: tuple[str, ...] = (sys.executable, "-m", "app.cli", "serve")
    """Starts a node that reads its settings from the environment."""
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the nodes, HOMING_…"""
    access: bool = False
    """Also measure what access costs: keys, 200 rules, a limit and an audit."""
    events: bool = False
    """True if the nodes keep events."""
    authorization: str = ""
    """The header Authorization that callers send."""
    latency_log: Path | None = None
    """Also measure what the latency log costs, and leave it in this folder, whose path is absolute."""

    def __post_init__(self) -> None:
        if self.profile not in FLEET_PROFILES:
            raise ConfigurationError(f"profile: {self.profile!a} is unknown; allowed: {', '.join(FLEET_PROFILES)}")
        _check("devices", self.devices, 1, MAX_DEVICES)
        _check("in_flight", self.in_flight, 1, MAX_IN_FLIGHT)
        _check("rounds", self.rounds, 1, 1000)
        _check("seconds", self.seconds, 0.1, 3600)
        _check("singles", self.singles, 1, 1_000_000)
        if self.commands is not None:
            _check("commands", self.commands, 1, 100_000_000)
        if any(count < 1 for count in self.pending) or sorted(set(self.pending)) != list(self.pending):
            raise ConfigurationError("pending: numbers from 1 on in rising order are allowed, such as 10,10000")
        if self.latency_log is not None and not self.latency_log.is_absolute():
            raise ConfigurationError("latency_log: must be an absolute path, as nodes run in folders of their own")
        self._check_urls()

    def _check_urls(self) -> None:
        if (self.nodes_url is None) != (self.mqtt_url is None):
            raise ConfigurationError("nodes_url and mqtt_url: give both (the fleet must reach the broker) or none")
        if self.nodes_url is not None and (urlsplit(self.nodes_url).scheme != "http" or not self.host_port[0]):
            raise ConfigurationError("nodes_url: allowed is http://host:port")
        if self.nodes_url is not None and self.pending:
            raise ConfigurationError("pending: is measured on private nodes only, as it needs their memory and CPU")
        if self.nodes_url is not None and self.events:
            raise ConfigurationError("events: are measured on private nodes only")
        if self.nodes_url is not None and self.access:
            raise ConfigurationError("access: is measured on private nodes only, with it and without")
        if self.nodes_url is not None and self.latency_log is not None:
            raise ConfigurationError("latency_log: is measured on private nodes only, with it and without")

    @property
    def host_port(self) -> tuple[str, int]:
        """The host and port of `nodes_url`, where the node to load listens."""
        try:
            parts = urlsplit(self.nodes_url or "")
            return parts.hostname or "", parts.port or 80
        except ValueError as error:
            raise ConfigurationError(f"nodes_url: {error}") from None


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"{name}: {value}; allowed are {least} to {most}")
