"""A node whose wall clock is wrong: `python -m homing_rig.chaos.skewed SECONDS app.cli serve`.

Shifts what the process reads as the time of day, before anything else is imported; the monotonic clock stays right, as
it does on a machine whose time of day is wrong.
"""

from __future__ import annotations

import runpy
import sys
import time


def shift(seconds: int) -> None:
    """Make `time.time` and `time.time_ns` wrong by so many seconds."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + seconds * 1_000_000_000


if __name__ == "__main__":
    _, amount, module, *arguments = sys.argv
    shift(int(amount))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
