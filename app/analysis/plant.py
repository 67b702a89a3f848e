"""The plan of `homing generate-log`: a fleet, and the anomalies that `--plant` puts there."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final

from app.core.errors import ConfigurationError
from app.core.ranges import check_range

START: Final = datetime(2026, 1, 5, tzinfo=UTC)
_MOST: Final = {"callbacks": 10_000_000_000, "days": 366, "nodes": len(ascii_lowercase), "devices": 1_000_000}
METHODS: Final = (
    ("dji", "camera_photo_take", 0.35, 350_000, 0.50, 10_000_000, 0.010),
    ("dji", "return_home", 0.15, 600_000, 0.45, 15_000_000, 0.008),
    ("dji", "flighttask_execute", 0.15, 1_800_000, 0.50, 30_000_000, 0.020),
    ("dji", "drone_open", 0.15, 700_000, 0.40, 15_000_000, 0.006),
    ("dji", "takeoff_to_point", 0.10, 1_200_000, 0.50, 30_000_000, 0.015),
    ("dji", "live_start_push", 0.10, 900_000, 0.60, 20_000_000, 0.012),
    ("homing", "ping", 0.40, 40_000, 0.50, 5_000_000, 0.001),
    ("homing", "read_state", 0.35, 90_000, 0.55, 5_000_000, 0.002),
    ("homing", "configure", 0.17, 180_000, 0.50, 10_000_000, 0.010),
    ("homing", "reboot", 0.08, 1_500_000, 0.50, 30_000_000, 0.005),
)
"""Profile, method, share of the profile's commands, median and sigma of its time on the device (log-normal), timeout in
microseconds, and share that fails."""
FIRMWARES: Final = ("fw1", "fw2", "fw3", "fw4")
GROUPS: Final = tuple(f"{prefix}-{firmware}" for prefix in ("dock", "sensor") for firmware in FIRMWARES)
"""Groups of devices, dji's and homing's: device ids are dock-fw1-00042."""
PLANTS: Final = {
    "slow_node": ("node", "node", "factor"),
    "flaky_firmware": ("device_group", "group", "share"),
    "bad_hour": ("hour", "hour", "factor"),
    "slow_method": ("method", "method", "since_day", "factor"),
}
"""Plant -> kind of anomaly, and its keys."""
NUMBERS: Final = {"factor": (3.0, 1, 100), "share": (0.15, 0, 1)}
"""Key -> what it is unless told, what it must be over, and the most; the seed chooses what other keys are."""
Anomaly = dict[str, Any]
"""One planted: `subject` and `kind` are as the table `anomalies` names them; the rest is what its plant has."""


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """ConfigurationError names the option that is wrong and what is allowed."""

    callbacks: int
    out: Path
    seed: int = 1
    plant: Path | None = None
    days: int = 1
    nodes: int = 3
    devices: int = 2000

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            check_range(f"--{name}", getattr(self, name), 1, most)

    @property
    def node_ids(self) -> list[str]:
        """The nodes of the cluster."""
        return [f"node-{letter}" for letter in ascii_lowercase[: self.nodes]]


def read_plants(options: GenerateOptions) -> list[Anomaly]:
    """The anomalies of a TOML file. ConfigurationError names the entry and key that is wrong, and what is allowed."""
    if options.plant is None:
        return []
    with named(f"--plant {options.plant}"):
        data = tomllib.loads(options.plant.read_text(encoding="utf-8"))
        entries = data.pop("anomaly", [])
        if data or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"{next(iter(data), 'anomaly')}: allowed: [[anomaly]] tables, and nothing else")
    found: list[Anomaly] = []
    chance = random.Random(options.seed)
    choices: dict[str, Sequence[Any]] = {
        "node": options.node_ids,
        "group": GROUPS,
        "hour": range(options.days * 24),
        "method": [f"{profile}/{method}" for profile, method, *_ in METHODS],
        "since_day": range(1, options.days),
    }
    for number, entry in enumerate(entries, 1):
        with named(f"--plant {options.plant}: anomaly {number}"):
            one = _read(entry, choices, chance)
            if any((one["kind"], one["subject"]) == (other["kind"], other["subject"]) for other in found):
                raise ValueError(f"{one['kind']} {one['subject']} is planted already")
            found.append(one)
    return found


@contextmanager
def named(what: str) -> Iterator[None]:
    """Raise errors of the body as ConfigurationError that names what was wrong."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{what}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def _read(entry: Mapping[str, Any], choices: Mapping[str, Sequence[Any]], chance: random.Random) -> Anomaly:
    plant = str(entry.get("kind", "missing"))
    if plant not in PLANTS:
        raise ValueError(f"kind is {plant}; allowed: {', '.join(PLANTS)}")
    kind, *keys = PLANTS[plant]
    if unknown := sorted(set(entry) - {"kind", *keys}):
        raise ValueError(f"unknown key {unknown[0]}; {plant} has {', '.join(sorted(keys))}")
    one: Anomaly = {"plant": plant, "kind": kind, "factor": 1.0, "share": 0.0, "hour": None, "since_day": None}
    for key in keys:
        one[key] = _number(key, entry) if key in NUMBERS else _choice(key, entry, choices[key], chance)
    hour = START + timedelta(hours=one["hour"] or 0)
    return one | {"subject": one[keys[0]] if plant != "bad_hour" else f"{hour:%Y-%m-%dT%H:00Z}"}


def _number(key: str, given: Mapping[str, Any]) -> float:
    default, over, most = NUMBERS[key]
    value = given.get(key, default)
    if type(value) in (int, float) and over < value <= most:
        return float(value)
    raise ValueError(f"{key} is {value!r}; allowed: over {over:g}, up to {most:g}")


def _choice(key: str, given: Mapping[str, Any], allowed: Sequence[Any], chance: random.Random) -> str | int:
    if not allowed:
        raise ValueError(f"{key}: what changes from one day to the next needs --days 2 or more")
    picked: str | int = chance.choice(allowed)  # also when it is given: later choices stay the same
    value: str | int = given.get(key, picked)
    if type(value) is type(picked) and value in allowed:
        return value
    said = f"a whole number from {allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(allowed)
    raise ValueError(f"{key} is {value!r}; allowed: {said}")
