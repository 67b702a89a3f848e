"""What `homing generate-log` invents: methods and groups of a fleet, and the anomalies that `--plant` puts there."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from app.core.errors import ConfigurationError

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
class Anomaly:
    """One planted anomaly; `subject` and `kind` are as the table `anomalies` names them."""

    plant: str
    kind: str
    subject: str
    factor: float = 1.0
    share: float = 0.0
    hour: int | None = None
    since_day: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What an anomaly may refer to."""

    start: datetime
    days: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Number:
    default: float
    over: float
    most: float


def read_plants(path: Path, shape: Shape, seed: int) -> tuple[Anomaly, ...]:
    """The anomalies of a TOML file; what it leaves open, such as which node, the seed decides.

    ConfigurationError names the file, the entry and key that is wrong, and what is allowed.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--plant {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--plant {path}: not TOML: {error}") from error
    unknown = sorted(set(data) - {"anomaly"})
    if unknown:
        raise ConfigurationError(f"--plant {path}: unknown key {unknown[0]}; allowed: [[anomaly]] tables")
    entries = data.get("anomaly", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigurationError(f"--plant {path}: anomaly must be a list of tables: write [[anomaly]]")
    chance = random.Random(seed)
    found: list[Anomaly] = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(_read(entry, shape, chance))
        except ValueError as error:
            raise ConfigurationError(f"--plant {path}: anomaly {number}: {error}") from None
        if len({(one.kind, one.subject) for one in found}) < number:
            what = f"{found[-1].kind} {found[-1].subject}"
            raise ConfigurationError(f"--plant {path}: anomaly {number}: {what} is planted already")
    return tuple(found)


_FACTOR: Final = {"factor": _Number(3.0, 1, 100)}


def _read(entry: Mapping[str, Any], shape: Shape, chance: random.Random) -> Anomaly:
    """ValueError says what is wrong."""
    plants: dict[str, tuple[str, Mapping[str, _Number | Sequence[Any]]]] = {
        "slow_node": ("node", {"node": shape.nodes, **_FACTOR}),
        "flaky_firmware": ("device_group", {"group": GROUPS, "share": _Number(0.15, 0, 1)}),
        "bad_hour": ("hour", {"hour": range(shape.days * 24), **_FACTOR}),
        "slow_method": (
            "method",
            {
                "method": [f"{profile}/{method}" for profile, method, *_ in METHODS],
                "since_day": range(1, shape.days),
                "factor": _Number(2.0, 1, 100),
            },
        ),
    }
    plant = entry.get("kind")
    if plant not in plants:
        said = "is missing" if plant is None else f"is {plant!r}"
        raise ValueError(f"kind {said}; allowed: {', '.join(plants)}")
    kind, keys = plants[plant]
    unknown = sorted(set(entry) - {"kind", *keys})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]}; {plant} has {', '.join(sorted(keys))}")
    if "since_day" in keys and shape.days == 1:
        raise ValueError("slow_method changes from one day to the next: --days 2 or more")
    values = {key: _value(key, allowed, entry, chance) for key, allowed in keys.items()}
    subject = values.pop("node", None) or values.pop("group", None) or values.pop("method", None)
    subject = subject or f"{shape.start + timedelta(hours=values['hour']):%Y-%m-%dT%H:00Z}"
    return Anomaly(plant, kind, subject, **values)


def _value(key: str, allowed: _Number | Sequence[Any], entry: Mapping[str, Any], chance: random.Random) -> Any:  # noqa: ANN401 - of TOML
    if isinstance(allowed, _Number):
        value = entry.get(key, allowed.default)
        if not isinstance(value, bool) and isinstance(value, int | float) and allowed.over < value <= allowed.most:
            return float(value)
        raise ValueError(f"{key} is {value!r}; allowed: over {allowed.over:g}, up to {allowed.most:g}")
    picked = chance.choice(allowed)  # also when it is given: later choices stay the same
    value = entry.get(key, picked)
    if type(value) is type(picked) and value in allowed:
        return value
    said = f"a whole number from {allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(allowed)
    raise ValueError(f"{key} is {value!r}; allowed: {said}")
