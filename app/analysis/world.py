"""The invented fleet of `homing generate-log`: profiles, methods, firmware, nodes, and how long everything takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Method:
    """A method, its share of its profile's commands, and its log-normal time on the device."""

    profile: str
    name: str
    share: float
    median_us: int
    sigma: float
    timeout_us: int
    failed: float

    @property
    def subject(self) -> str:
        """As the analysis names it."""
        return f"{self.profile}/{self.name}"


METHODS: Final = (
    Method("dji", "camera_photo_take", 0.35, 350_000, 0.50, 10_000_000, 0.010),
    Method("dji", "return_home", 0.15, 600_000, 0.45, 15_000_000, 0.008),
    Method("dji", "flighttask_execute", 0.15, 1_800_000, 0.50, 30_000_000, 0.020),
    Method("dji", "drone_open", 0.15, 700_000, 0.40, 15_000_000, 0.006),
    Method("dji", "takeoff_to_point", 0.10, 1_200_000, 0.50, 30_000_000, 0.015),
    Method("dji", "live_start_push", 0.10, 900_000, 0.60, 20_000_000, 0.012),
    Method("homing", "ping", 0.40, 40_000, 0.50, 5_000_000, 0.001),
    Method("homing", "read_state", 0.35, 90_000, 0.55, 5_000_000, 0.002),
    Method("homing", "configure", 0.17, 180_000, 0.50, 10_000_000, 0.010),
    Method("homing", "reboot", 0.08, 1_500_000, 0.50, 30_000_000, 0.005),
)
PROFILES: Final = {"dji": "dock", "homing": "sensor"}
"""Profile -> how the ids of its devices begin."""
PROFILE_SHARE: Final = 0.6
"""Of the devices speak the first profile."""
FIRMWARES: Final = ("fw1", "fw2", "fw3", "fw4")
GROUPS: Final = tuple(f"{prefix}-{firmware}" for prefix in PROFILES.values() for firmware in FIRMWARES)
"""Device groups: device ids are dock-fw1-00042."""
HOME_TILT: Final = 0.12
"""The first node is home to so much more than the last, in parts of an equal share."""

NO_ANSWER: Final = 0.003
"""Share of commands that no device ever answers."""
CANCELLED: Final = 0.001
UNSENT: Final = 0.0005
DUPLICATE: Final = 0.002
LATE: Final = 0.5
"""Share of timed-out commands whose response comes in after all."""
PARKED: Final = 0.85
"""Share of callers that wait on the line."""
TAIL: Final = 0.008
"""Share of commands whose device time is drawn out by a Pareto factor."""
TAIL_SHAPE: Final = 1.5
TAIL_MOST: Final = 60.0
DEVICE_SIGMA: Final = 0.12
"""Devices differ among themselves, log-normally."""
LOAD_EFFECT: Final = 0.04
"""At the busiest time of day, devices take that much longer; at the quietest that much shorter."""
RHYTHM: Final = 0.55
"""0 is the same load all day; the busiest instant has (1 + it) / (1 − it) times the load of the quietest."""

REGISTER: Final = (420, 0.35)
"""Median in microseconds, and sigma."""
HAND_OVER: Final = (45, 0.30)
PUBLISH: Final = (650, 0.40)
RECORD: Final = (450, 0.35)
WAKE_LOCAL: Final = (60, 0.30)
WAKE_FORWARDED: Final = (780, 0.40)
DELIVER: Final = (160, 0.35)
EXPIRE: Final = (1500, 0.50)
"""From the deadline to the outcome on record."""


def nodes(count: int) -> tuple[str, ...]:
    """Names of nodes: node-a, node-b and so on."""
    return tuple(f"node-{chr(ord('a') + index)}" for index in range(count))
