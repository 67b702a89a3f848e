"""When Redis was away: no node can write the outcome of a command that is due then."""

from __future__ import annotations

from typing import Final

from homing_rig.chaos.history import Fault, FaultPhase
from homing_rig.chaos.schedule import REDIS, Kind

_AWAY: Final = frozenset({Kind.KILL, Kind.FREEZE, Kind.RESTART, Kind.OUTAGE})


class StoreOutages:
    """Collects faults that take Redis away as a whole."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._over: list[tuple[float, float]] = []

    def take(self, fault: Fault) -> None:
        """Note that it begins or ends, if it is one."""
        if fault.target != REDIS or fault.kind not in _AWAY:
            return
        if fault.phase is FaultPhase.BEGIN:
            self._since = fault.at
        elif self._since is not None:
            self._over.append((self._since, fault.at))
            self._since = None

    def writable(self, due: float, grace: float) -> float:
        """The instant from which what is due then, and has so many seconds, could be written."""
        return max((back for gone, back in self._over if gone <= due + grace and due <= back), default=due)
