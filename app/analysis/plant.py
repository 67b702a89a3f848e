"""Anomalies that `homing generate-log --plant` puts into a log, and the truth about them."""

from __future__ import annotations

import random
import tomllib
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from app.analysis import world
from app.core.errors import ConfigurationError


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

    def hour_name(self, hour: int) -> str:
        """The hour as the table `anomalies` names it."""
        return (self.start + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:00Z")


_KINDS: Final = {
    "slow_node": {"node", "factor"},
    "flaky_firmware": {"group", "share"},
    "bad_hour": {"hour", "factor"},
    "slow_method": {"method", "since_day", "factor"},
}
_MOST_FACTOR: Final = 100.0


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
        one = _Entry(f"--plant {path}: anomaly {number}", entry).read(shape, chance)
        if any((other.kind, other.subject) == (one.kind, one.subject) for other in found):
            raise ConfigurationError(f"--plant {path}: anomaly {number}: {one.kind} {one.subject} is planted already")
        found.append(one)
    return tuple(found)


def truth(anomalies: tuple[Anomaly, ...], seed: int, callbacks: int, shape: Shape) -> dict[str, Any]:
    """What was planted, for `_truth.json`."""
    return {
        "callbacks": callbacks,
        "seed": seed,
        "from": shape.start.isoformat(),
        "days": shape.days,
        "nodes": list(shape.nodes),
        "anomalies": [asdict(one) for one in anomalies],
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    where: str
    data: dict[str, Any]

    def read(self, shape: Shape, chance: random.Random) -> Anomaly:
        plant = self._choice("kind", tuple(_KINDS), None)
        unknown = sorted(set(self.data) - _KINDS[plant] - {"kind"})
        if unknown:
            allowed = ", ".join(sorted(_KINDS[plant]))
            raise ConfigurationError(f"{self.where}: unknown key {unknown[0]}; {plant} has {allowed}")
        match plant:
            case "slow_node":
                return Anomaly(plant, "node", self._choice("node", shape.nodes, chance), factor=self._factor(3.0))
            case "flaky_firmware":
                group = self._choice("group", world.GROUPS, chance)
                return Anomaly(plant, "device_group", group, share=self._number("share", 0.15, 0.0, 1.0))
            case "bad_hour":
                hour = self._whole("hour", 0, shape.days * 24 - 1, chance)
                return Anomaly(plant, "hour", shape.hour_name(hour), factor=self._factor(3.0), hour=hour)
            case _:
                if shape.days < 2:  # noqa: PLR2004 - from one day to the next
                    raise ConfigurationError(
                        f"{self.where}: slow_method changes from one day to the next: --days 2 or more"
                    )
                subjects = tuple(method.subject for method in world.METHODS)
                subject = self._choice("method", subjects, chance)
                day = self._whole("since_day", 1, shape.days - 1, chance)
                return Anomaly(plant, "method", subject, factor=self._factor(2.0), since_day=day)

    def _choice(self, key: str, allowed: tuple[str, ...], chance: random.Random | None) -> str:
        picked = chance.choice(allowed) if chance else None  # also when it is given: later choices stay the same
        value = self.data.get(key, picked)
        if value not in allowed:
            said = "is missing" if key not in self.data else f"is {value!r}"
            raise ConfigurationError(f"{self.where}: {key} {said}; allowed: {', '.join(allowed)}")
        return str(value)

    def _whole(self, key: str, least: int, most: int, chance: random.Random) -> int:
        picked = chance.randint(least, most)
        value = self.data.get(key, picked)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            allowed = f"a whole number from {least} to {most}"
            raise ConfigurationError(f"{self.where}: {key} is {value!r}; allowed: {allowed}")
        return value

    def _factor(self, default: float) -> float:
        return self._number("factor", default, 1.0, _MOST_FACTOR)

    def _number(self, key: str, default: float, over: float, most: float) -> float:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not over < value <= most:
            raise ConfigurationError(f"{self.where}: {key} is {value!r}; allowed: over {over:g}, up to {most:g}")
        return float(value)
