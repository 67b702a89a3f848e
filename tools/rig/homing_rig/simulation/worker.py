"""A process that runs seeds: `python -m homing_rig.simulation.worker FIRST STOP STEP COMMANDS`, a line for each."""

from __future__ import annotations

import sys

from homing_rig.simulation.suite import simulate


def main(arguments: list[str]) -> None:
    """The program."""
    first, stop, step, commands = map(int, arguments)
    for seed in range(first, stop, step):
        sys.stdout.buffer.write(simulate(seed, commands).encoded())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
