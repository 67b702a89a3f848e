"""The benchmark: closed-loop load on two nodes, beside references that are measured in the same run.

For the command line:

    BenchOptions(profile="dji", devices=200, in_flight=128, rounds=3, seconds=5.0, commands=None, pending=(),
                 nodes_url=None, mqtt_url=None)
                                            ConfigurationError says which option and what is allowed;
                                            `pending=(10, 10_000)` measures how commands that wait weigh
    await run_bench(options, progress) -> BenchReport
                                            `progress(fraction, text)` is called from 0.0 to 1.0;
                                            BenchError (a HomingError) when something cannot be started
    render(report) -> rich renderable       for a rich Console, also without a terminal
    report.as_json() -> bytes               for --json FILE
"""

from homing_rig.bench.options import BenchError, BenchOptions, ProgressCallback
from homing_rig.bench.render import render
from homing_rig.bench.report import BenchReport
from homing_rig.bench.run import run_bench

__all__ = ["BenchError", "BenchOptions", "BenchReport", "ProgressCallback", "render", "run_bench"]
