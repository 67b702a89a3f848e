"""`homing generate-log`: a log as nodes write it, of any size, with anomalies whose truth is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.analysis import world
from app.analysis.plant import Shape, read_plants, truth
from app.analysis.session import spark_session
from app.analysis.synthetic import FILE_NODE, Plan, records
from app.core.errors import ConfigurationError
from app.latency.schema import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRUTH_NAME: Final = "_truth.json"
"""Beside the folders of the log; readers skip names that begin with `_`."""
MOST_NODES: Final = 26
MOST_DAYS: Final = 366
MOST_DEVICES: Final = 1_000_000
MOST_CALLBACKS: Final = 10_000_000_000
_SLICE: Final = 1_000_000
"""Commands between two signs of progress."""
_TASK: Final = 250_000
_JAVA: Final = "-XX:-DontCompileHugeMethods"
"""The records are one long generated method, which the JVM would only interpret; compiling it takes memory."""
_WRITING: Final = "_writing"

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What `homing generate-log` was asked for."""

    callbacks: int
    out: Path
    seed: int = 1
    plant: Path | None = None
    days: int = 1
    nodes: int = 3
    devices: int = 2000
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    master: str | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written."""

    files: int
    truth: dict[str, Any]


def generate(options: GenerateOptions, progress: Progress = lambda _fraction, _text: None) -> Generated:
    """Write the log; ConfigurationError when the options are wrong or the folder is in use."""
    _plan(options)
    progress(0.0, "starting Spark")
    with spark_session("homing generate-log", options.master, java=_JAVA) as spark:
        return generate_with(spark, options, progress)


def generate_with(
    spark: SparkSession, options: GenerateOptions, progress: Progress = lambda _fraction, _text: None
) -> Generated:
    """The same in a session that is there already."""
    plan = _plan(options)
    writing = options.out / _WRITING
    for first in range(0, plan.callbacks, _SLICE):
        last = min(first + _SLICE, plan.callbacks)
        parts = -(-(last - first) // _TASK)
        target = (writing / f"{first // _SLICE:06d}").absolute()
        frame = records(spark, plan, first, last, parts)
        frame.write.partitionBy(*PARTITIONS, FILE_NODE).parquet(target.as_uri())
        progress(last / plan.callbacks, f"{last:,} of {plan.callbacks:,} callbacks")
    files = _arrange(writing, options.out)
    found = truth(plan.anomalies, options.seed, options.callbacks, plan.shape)
    (options.out / TRUTH_NAME).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return Generated(files, found)


def _plan(options: GenerateOptions) -> Plan:
    bounds = (
        ("callbacks", options.callbacks, MOST_CALLBACKS),
        ("days", options.days, MOST_DAYS),
        ("nodes", options.nodes, MOST_NODES),
        ("devices", options.devices, MOST_DEVICES),
    )
    for name, value, most in bounds:
        if not 1 <= value <= most:
            raise ConfigurationError(f"--{name} is {value}; allowed: 1 to {most:,}")
    try:
        if options.out.exists() and any(options.out.iterdir()):
            raise ConfigurationError(f"--out {options.out}: there is something in it; give a new or an empty folder")
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out {options.out}: {error.strerror or error}") from error
    shape = Shape(options.start, options.days, world.nodes(options.nodes))
    anomalies = read_plants(options.plant, shape, options.seed) if options.plant else ()
    return Plan(options.callbacks, options.seed, options.devices, shape, anomalies)


def _arrange(writing: Path, out: Path) -> int:
    """Move Spark's files to where nodes put theirs: date=…/hour=…/<node>-<incarnation>-<sequence>.parquet."""
    sequence: dict[str, int] = {}
    files = sorted(writing.glob(f"*/{PARTITIONS[0]}=*/{PARTITIONS[1]}=*/{FILE_NODE}=*/*.parquet"), key=_order)
    for file in files:
        node = file.parent.name.partition("=")[2]
        hour = file.parent.parent
        sequence[node] = sequence.get(node, 0) + 1
        target = out / hour.parent.name / hour.name
        target.mkdir(parents=True, exist_ok=True)
        file.rename(target / f"{node}-1-{sequence[node]:06d}.parquet")
    shutil.rmtree(writing)
    return len(files)


def _order(file: Path) -> tuple[str, ...]:
    """Slice, hour, node, task: names that Spark makes up afresh each time play no part."""
    task = "-".join(file.name.split("-")[:2])
    return (*file.parts[-5:-1], task)
