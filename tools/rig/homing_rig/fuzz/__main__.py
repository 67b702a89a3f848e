"""`python -m homing_rig.fuzz --count 1000000`: mutated packets against the broker in a node, without sockets."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

import psutil  # type: ignore[import-untyped] # it comes without types

from homing_rig.fuzz.machine import FuzzRun

STEPS: Final = 10
MOST_GROWTH: Final = 16 * 2**20


def main(arguments: Sequence[str]) -> int:
    """Feed packets to a broker; exit code 1, or an exception, when it does more than answer or end a connection.

    Two clients beside must be served as if nothing was, nothing may be left at the end, and memory must not grow after
    the first tenth.
    """
    parser = argparse.ArgumentParser(prog="python -m homing_rig.fuzz", description=__doc__)
    parser.add_argument("--count", type=_at_least_one, default=1_000_000, help="how many packets; 1,000,000 by default")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same packets")
    said = parser.parse_args(arguments)
    run, process = FuzzRun(said.seed), psutil.Process(os.getpid())
    sizes = []
    for _ in range(STEPS):
        run.run(-(-said.count // STEPS))
        sizes.append(process.memory_info().rss)
        print(f"{run.result.packets} packets, {sizes[-1] / 2**20:.1f} MiB", file=sys.stderr)
    run.finish()
    result = run.result
    print(f"packets {result.packets}, connections {result.conversations}, looks beside {result.witnessed}")
    print("ends: " + ", ".join(f"{name} {number}" for name, number in result.outcomes.most_common()))
    growth = max(sizes) - sizes[0]
    print(f"memory after a tenth {sizes[0] / 2**20:.1f} MiB, most {max(sizes) / 2**20:.1f} MiB")
    return int(growth > MOST_GROWTH)


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} packets; allowed: 1 and more")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
