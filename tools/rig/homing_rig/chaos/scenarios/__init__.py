"""All scenarios, by name. The names are those of the reliability scenarios in docs/guarantees.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.core.errors import ConfigurationError
from homing_rig.chaos.scenario import Scenario
from homing_rig.chaos.scenarios.cold_events import E14
from homing_rig.chaos.scenarios.event_bounds import E5, E6
from homing_rig.chaos.scenarios.event_followers import E7, E11
from homing_rig.chaos.scenarios.events import E1, E2, E3, E4, E12, E13
from homing_rig.chaos.scenarios.fleet_runs import PARTITION, RUN
from homing_rig.chaos.scenarios.held_race import R31
from homing_rig.chaos.scenarios.held_trouble import FORGET, FORGET_ALONE, FREEZE
from homing_rig.chaos.scenarios.lanes import LANES
from homing_rig.chaos.scenarios.leak import R18
from homing_rig.chaos.scenarios.nodes import R2, R3, R4, R5
from homing_rig.chaos.scenarios.paths import R6, R10, R13, R13_KILL, R19
from homing_rig.chaos.scenarios.pushes import E9
from homing_rig.chaos.scenarios.queues import E8, E15
from homing_rig.chaos.scenarios.redis_cluster import R11_CLUSTER
from homing_rig.chaos.scenarios.redis_trouble import R7, R8, R9, R11, R11_ALONE, R12
from homing_rig.chaos.scenarios.sessions import R24, R25, R26, R27, R28
from homing_rig.chaos.scenarios.traffic import R1, R14, R15, R16, R17
from homing_rig.chaos.scenarios.webhooks import R30

_ALL: Final = (
    *(R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R11_ALONE, R11_CLUSTER),
    *(R12, R13, R13_KILL),
    *(R14, R15, R16, R17, R18, R19),
    *(R24, R25, R26, R27, R28, R30, R31),
    *(FORGET, FORGET_ALONE, FREEZE, LANES, RUN, PARTITION),
    *(E1, E2, E3, E4, E5, E6, E7, E8, E9, E11, E12, E13, E14, E15),
)
SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({one.name: one for one in _ALL})

ON_UP: Final = ("R1", "R3", "R15", "R16", "R30", "R31", "LANES", "E1", "E2", "E3", "E8", "E9")
"""The scenarios that can run on one `homing up`: they need no second node, and look into no Redis."""


def find(name: str) -> Scenario:
    """The scenario of that name, in any case of letters; ConfigurationError lists all names."""
    found = SCENARIOS.get(name.upper())
    if found is None:
        raise ConfigurationError(f"scenario: {name[:32]!a} is unknown; allowed: {', '.join(SCENARIOS)}")
    return found
