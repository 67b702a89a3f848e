"""A log of many cells and few records in each: many nodes and methods, skew, odd ids, and values that are rare.

`python -m tests.analysis.odd_logs DIR 800000 50 200` writes such a log of so many commands, nodes and methods.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.analysis.small_logs import late, outcome, timed_out, write

NODES = 20
METHODS = 50
HOURS = 30
IDS = ("pump", "väntil-Ω", "離陸", "it's", 'a"b\\c', "x y/z", "007", "-", "ÄÖ_1", "sensor:9")


def odd_records(
    count: int = 3000, nodes: int = NODES, methods: int = METHODS, seed: int = 5
) -> Iterator[dict[str, Any]]:
    """Outcomes of all kinds, late and duplicate responses; times from 0 µs to 30 days; clocks that step back."""
    rng = random.Random(seed)
    for number in range(count):
        at = 3600 * HOURS * number / count
        took = rng.choice(
            (0.0, 0.5, 1e3 * rng.lognormvariate(0, 2), rng.choice((3e8, 2.6e9)) if number % 40 == 0 else 7)
        )
        home, receiving = (f"node-{int(nodes * rng.random() ** 3):02d}" for _ in range(2))
        shared: dict[str, Any] = {
            "device_id": rng.choice(IDS) if number % 3 else f"dock-fw{number % 4}-{int(40 * rng.random() ** 2):03d}",
            "profile": None if number % 97 == 0 else ("dji", "homing")[number % 2],
            "method": None if number % 97 == 0 else f"method_{int(methods * rng.random() ** 2)}",
            "home_node": home,
            "writing_node": home,
        }
        match number % 20:
            case 3:
                command = timed_out(at, 10, **shared)
                yield command
                if number % 40 == 3:
                    yield late(command, 12_000 + number)
                continue
            case 5 | 6:
                kind = ("cancelled", "unsent")[number % 20 - 5]
                yield outcome(at, took, outcome=kind, **{**shared, "receiving_node": None, "forwarded": False})
                continue
        row = outcome(at, took, outcome="failed" if number % 11 == 0 else "succeeded", **shared)
        row |= {"receiving_node": receiving, "forwarded": receiving != home}
        recorded = row["recorded_at"]
        row |= {
            "published_at": row["registered_at"] + timedelta(microseconds=40),
            "received_at": recorded - timedelta(microseconds=rng.randint(0, 900)),
            # Clocks differ by some milliseconds, and now and then by seconds.
            "woken_at": recorded
            + timedelta(microseconds=rng.choice((60, 800, -4000, -3_000_000 if number % 9 == 0 else 5))),
            "register_us": rng.randint(0, 900),
            "publish_us": None if number % 13 == 0 else rng.randint(100, 9000),
            "record_us": None if row["forwarded"] else rng.randint(100, 900),
            "deliver_us": None if number % 7 == 0 else rng.randint(0, 400),
        }
        if number % 101 == 0:
            row["total_us"] = None  # another node wrote it: home was gone
        yield row
        if number % 50 == 1:
            again = late(row, 1000 * 60)
            yield {**again, "kind": "duplicate", "receiving_node": receiving}


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    write(Path(folder), odd_records(*map(int, numbers)))
