"""`python -m homing_rig.kills`: `kill -9` of a node with a broker, again and again, while clients speak (E10)."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from homing_rig.kills.run import run_kills


def main(arguments: Sequence[str]) -> int:
    """Run it, and say what came of it; exit code 1 when something was lost, or came twice that must not."""
    parser = argparse.ArgumentParser(prog="python -m homing_rig.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often the node is killed; 20 by default")
    parser.add_argument("--rate", type=float, default=2_000, help="messages per second; 2,000 by default")
    parser.add_argument("--seed", type=int, default=1, help="the same seed chooses the same times and QoS")
    said = parser.parse_args(arguments)
    result = asyncio.run(run_kills(said.kills, said.rate, said.seed))
    print(f"kills {result.kills}, said by QoS {dict(sorted(result.said.items()))}, promised {result.promised}")
    print(f"delivered {result.delivered}, of them again with QoS 1 {result.again}, wills {result.wills}")
    for sentence in result.wrong:
        print(f"WRONG: {sentence}")
    return int(bool(result.wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
