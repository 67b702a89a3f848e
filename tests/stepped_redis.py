"""A Redis whose time of day can be stepped while it runs, as an administrator or a bad NTP server does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from homing_rig.chaos.stepped import MISSING, SteppedClock, library
from tests.services import IN_CONTAINERS, RedisProcess, without_program


class SteppedRedis(RedisProcess):
    """The test is skipped where Redis is in a container; so it is without libfaketime, but not in CI."""

    def __init__(self, *, at_once: bool = False) -> None:
        """`at_once`: whether it sees a step with its next look at the clock, see `SteppedClock`."""
        super().__init__()
        if IN_CONTAINERS:
            pytest.skip("the clock of a Redis in a container is that of the machine")
        if library() is None:
            without_program(MISSING)
        self.clock = SteppedClock(self.folder / "clock", at_once=at_once)

    def _command(self) -> Sequence[str]:
        settings = [f"{name}={value}" for name, value in self.clock.environment.items()]
        return ["env", *settings, *super()._command()]
