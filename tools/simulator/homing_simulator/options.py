"""Options of a simulated fleet, and how people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.core.durations import ALLOWED, parse_duration
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import name_of, validate_device_id
from app.core.profiles.profile import DeviceProfile
from homing_simulator.families import FAMILIES

FLEET_PROFILES: Final = tuple(sorted(FAMILIES))
"""The device profiles whose devices are simulated in more than their profile says: steps of jobs, and outputs."""

MAX_DEVICES: Final = 100_000

_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", re.ASCII)
_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Range:
    """A duration between two bounds, both included."""

    low: timedelta
    high: timedelta


def parse_range(text: str) -> Range:
    """`50ms..2s`, or one duration for both bounds; ValueError names what is allowed."""
    first, dots, second = text.partition("..")
    try:
        low = parse_duration(first)
        high = parse_duration(second) if dots else low
    except ValueError:
        raise ValueError(f"{text[:32]!a} is not a range; allowed: 50ms..2s, or one duration: {ALLOWED}") from None
    if low > high:
        raise ValueError(f"{text[:32]!a} is not a range: it ends before it begins")
    return Range(low, high)


def parse_share(text: str) -> float:
    """`1%` or `0.5%` as a number from 0.0 to 1.0; ValueError names what is allowed."""
    found = _SHARE.fullmatch(text)
    if found is None or float(found[1]) > 100:  # noqa: PLR2004 - per cent
        raise ValueError(f"{text[:32]!a} is not a share; allowed: 0% to 100%, such as 1% or 0.5%")
    return float(found[1]) / 100


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetOptions:
    """A fleet. A command meets at most one of the faults, whose shares (0.0 to 1.0) add up to 1.0 at most.

    Raises ConfigurationError that names the option.
    """

    profile: str = "homing"
    speaks: DeviceProfile | None = None
    """A profile that devices are played from, and from nothing else; `profile` is its name then."""
    devices: int = 10
    first_device: str = "SN0001"
    """The id of the first device; the others count on from its digits."""
    delay: Range = Range(timedelta(), timedelta())
    """The time from command to reply, and from each step of a job to the next."""
    drop: float = 0.0
    """The share of commands without an answer."""
    duplicate: float = 0.0
    """The share of answers that are sent twice."""
    late: float = 0.0
    """The share of answers that come `late_by` after the command's deadline, or after the command without one."""
    late_by: Range = Range(timedelta(seconds=20), timedelta(seconds=20))
    garbage: float = 0.0
    """The share of answers in whose place something undecodable is sent."""
    refuse: float = 0.0
    """The share of commands that the device answers with a refusal."""
    silent_methods: frozenset[str] = frozenset()
    """Methods that are never answered."""
    seed: int | None = None
    """Makes the faults and delays the same in every run."""
    devices_per_session: int = 1
    """The number of devices that share one MQTT session, as behind a gateway."""
    max_waiting: int = 100_000
    """The number of answers that may wait for their time; those beyond are not sent, and counted as `overloaded`."""

    def __post_init__(self) -> None:
        if self.speaks is None and self.profile not in FAMILIES:
            raise ConfigurationError(f"profile: {self.profile!a} is unknown; allowed: {', '.join(FLEET_PROFILES)}")
        if not 1 <= self.devices <= MAX_DEVICES:
            raise ConfigurationError(f"devices: {self.devices}; allowed are 1 to {MAX_DEVICES}")
        if self.devices_per_session < 1:
            raise ConfigurationError(f"devices_per_session: {self.devices_per_session}; at least 1 is needed")
        if self.max_waiting < 1:
            raise ConfigurationError(f"max_waiting: {self.max_waiting}; at least 1 is needed")
        shares = [self.drop, self.duplicate, self.late, self.garbage, self.refuse]
        if min(shares) < 0 or sum(shares) > 1.0 + 1e-9:
            raise ConfigurationError(
                "drop, duplicate, late, garbage and refuse: each is 0% to 100%, and together they are 100% at most"
            )
        device_ids(self.first_device, self.devices)


def device_ids(first: str, count: int) -> list[str]:
    """`SN0001`, `SN0002`, …: `count` ids that count on from the digits at the end of the first."""
    try:
        found = _NUMBERED.fullmatch(name_of(validate_device_id(first)))
    except InvalidInputError as error:
        raise ConfigurationError(f"first_device: {error.reason}") from None
    if found is None:
        raise ConfigurationError(f"first_device: {first!a} does not end with a number, such as SN0001")
    number, width = int(found[2]), len(found[2])
    try:
        return [validate_device_id(f"{found[1]}{number + index:0{width}d}") for index in range(count)]
    except InvalidInputError as error:
        raise ConfigurationError(f"first_device: {error.reason}") from None
