"""`kill -9` of `homing analyze` at random moments, over and over: what it lost or counted twice.

`python -m tests.analysis.kills DIR --kills 12 --seed 7` does that in a new folder. Each time Python is killed alone and
started again at once, as an orchestrator does: the JVM that it had may still be writing. After a run that came to its
end the manifests are taken away.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from app.analysis.contracts import ROLLUPS, TABLES
from app.analysis.generate import generate
from app.analysis.plant import GenerateOptions
from app.cli.output import out as stdout
from app.cli.output import tell
from tests.analysis.results import queried

DAYS = 3
STARTS = 0.3
"""Share of a whole run in which Spark is started and nothing is written yet."""


def start(log: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "app.cli", "analyze", str(log), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def whole(log: Path, out: Path) -> float:
    """Seconds of a run to the end."""
    began = perf_counter()
    _, said = (run := start(log, out)).communicate()
    if run.returncode:
        sys.exit(f"ended with {run.returncode}: {said}")
    return perf_counter() - began


def killed(log: Path, out: Path, after: float) -> str | None:
    """Return what the run was at when it was killed; None when it had ended before."""
    run = start(log, out)
    try:
        run.wait(after)
    except subprocess.TimeoutExpired:
        run.kill()
    _, said = run.communicate()
    return (said.strip().splitlines() or ["nothing yet"])[-1].strip() if run.returncode else None


def different(one: str, other: str) -> int:
    """Rows that only one of two queries has, as often as it has them."""
    (found,) = queried(
        f"SELECT (SELECT count(*) FROM ({one} EXCEPT ALL {other})) + (SELECT count(*) FROM ({other} EXCEPT ALL {one}))"
    ).fetchall()
    return int(found[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--callbacks", type=int, default=200_000)
    given = parser.parse_args()
    rng, log = random.Random(given.seed), given.folder / "log"
    generate(GenerateOptions(callbacks=given.callbacks, out=log, seed=given.seed, days=DAYS))
    expected, out = given.folder / "whole", given.folder / "killed"
    seconds = whole(log, expected)
    kills = 0
    while kills < given.kills:
        if at := killed(log, out, rng.uniform(STARTS, 1) * seconds):
            kills += 1
            tell(stdout, f"kill {kills}: {at}")
        else:
            shutil.rmtree(out / "manifest")  # so it has to do all of it again, over what is there
    whole(log, out)
    wrong = 0
    for kind, names, files in (
        ("rollups", [one.name for one in ROLLUPS], "date=*/*.parquet"),
        ("tables", [one.name for one in TABLES], "*.parquet"),
    ):
        for name in names:
            rows = [f"FROM read_parquet('{folder / kind / name / files}')" for folder in (expected, out)]
            if found := different(*rows):
                tell(stdout, f"{kind}/{name}: {found} rows differ")
                wrong += found
    tell(stdout, f"{given.kills} kills: {wrong} rows differ from a run that was left alone, which took {seconds:.0f} s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
