"""What `homing generate-log` is asked for and invents: a fleet, and the anomalies that `--plant` puts there."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final, NamedTuple

from app.core.errors import ConfigurationError

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
            if not 1 <= (value := getattr(self, name)) <= most:
                raise ConfigurationError(f"--{name} is {value}; allowed: 1 to {most:,}")

    @property
    def node_ids(self) -> list[str]:
        """The nodes of the cluster."""
        return [f"node-{letter}" for letter in ascii_lowercase[: self.nodes]]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One planted anomaly; `subject` and `kind` are as the table `anomalies` names them."""

    plant: str
    kind: str
    subject: str
    factor: float = 1.0
    share: float = 0.0
    hour: int | None = None
    since_day: int | None = None


class _Number(NamedTuple):
    default: float
    over: float
    most: float


def _plants(options: GenerateOptions) -> dict[str, tuple[str, dict[str, Any]]]:
    """Plant -> kind of anomaly and its keys, each with what is allowed: a _Number, or a choice that the seed makes."""
    methods = [f"{profile}/{method}" for profile, method, *_ in METHODS]
    days, factor = range(1, options.days), _Number(3.0, 1, 100)
    return {
        "slow_node": ("node", {"node": options.node_ids, "factor": factor}),
        "flaky_firmware": ("device_group", {"group": GROUPS, "share": _Number(0.15, 0, 1)}),
        "bad_hour": ("hour", {"hour": range(options.days * 24), "factor": factor}),
        "slow_method": ("method", {"method": methods, "since_day": days, "factor": _Number(2.0, 1, 100)}),
    }


def read_plants(options: GenerateOptions) -> list[Anomaly]:
    """The anomalies of a TOML file; what it leaves open, such as which node, the seed decides.

    ConfigurationError names the file, the entry and key that is wrong, and what is allowed.
    """
    if options.plant is None:
        return []
    with named(f"--plant {options.plant}"):
        data = tomllib.loads(options.plant.read_text(encoding="utf-8"))
        entries = data.pop("anomaly", [])
        if data or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"{next(iter(data), 'anomaly')}: allowed: [[anomaly]] tables, and nothing else")
    found: list[Anomaly] = []
    plants, chance = _plants(options), random.Random(options.seed)
    for number, entry in enumerate(entries, 1):
        with named(f"--plant {options.plant}: anomaly {number}"):
            one = _read(entry, plants, chance)
            if any((one.kind, one.subject) == (other.kind, other.subject) for other in found):
                raise ValueError(f"{one.kind} {one.subject} is planted already")
            found.append(one)
    return found


@contextmanager
def named(what: str) -> Iterator[None]:
    """What is wrong as ConfigurationError."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{what}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def _read(entry: Mapping[str, Any], plants: Mapping[str, tuple[str, dict[str, Any]]], chance: random.Random) -> Anomaly:
    plant = str(entry.get("kind", "missing"))
    if plant not in plants:
        raise ValueError(f"kind is {plant}; allowed: {', '.join(plants)}")
    kind, keys = plants[plant]
    if unknown := sorted(set(entry) - {"kind", *keys}):
        raise ValueError(f"unknown key {unknown[0]}; {plant} has {', '.join(sorted(keys))}")
    values = {key: _value(key, allowed, entry, chance) for key, allowed in keys.items()}
    subject = values.pop("node", None) or values.pop("group", None) or values.pop("method", None)
    return Anomaly(plant, kind, subject or f"{START + timedelta(hours=values['hour']):%Y-%m-%dT%H:00Z}", **values)


def _value(key: str, allowed: Any, given: Mapping[str, Any], chance: random.Random) -> Any:  # noqa: ANN401 - of TOML
    if isinstance(allowed, _Number):
        value = given.get(key, allowed.default)
        if not isinstance(value, bool) and isinstance(value, int | float) and allowed.over < value <= allowed.most:
            return float(value)
        raise ValueError(f"{key} is {value!r}; allowed: over {allowed.over:g}, up to {allowed.most:g}")
    if not allowed:
        raise ValueError(f"{key}: what changes from one day to the next needs --days 2 or more")
    picked = chance.choice(allowed)  # also when it is given: later choices stay the same
    value = given.get(key, picked)
    if type(value) is type(picked) and value in allowed:
        return value
    said = f"a whole number from {allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(allowed)
    raise ValueError(f"{key} is {value!r}; allowed: {said}")
