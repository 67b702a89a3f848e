"""The Spark session of all jobs: on this machine alone by default, on a cluster when told so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.analysis.jit import quick_compiler
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_NEEDED: Final = 17
DRIVER_MEMORY: Final = "1536m"
"""Heap of the one JVM of a local run. With its code, stacks and direct buffers and Python it stays under 3 GiB."""

_JAVA_VERSION: Final = re.compile(r'version "(\d+)')


def java_problem() -> str | None:
    """Say in a sentence why Spark cannot start for want of Java; None when it can."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(program)
    where = f"JAVA_HOME is {home}, where" if home else "On the PATH"
    advice = "on Debian or Ubuntu run 'apt install openjdk-17-jre-headless'"
    if found is None:
        return f"Spark needs Java {JAVA_NEEDED} or newer. {where} there is no java: {advice}."
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    version = _JAVA_VERSION.search(said.stderr + said.stdout)
    if version is None:
        return f"Spark needs Java {JAVA_NEEDED} or newer. `{found} -version` says no version: {advice}."
    if int(version[1]) < JAVA_NEEDED:
        return f"Spark needs Java {JAVA_NEEDED} or newer. `{found}` is Java {version[1]}: {advice}."
    return None


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    settings: dict[str, str] | None = None,
    java: str = "",
    *,
    lasting: bool = False,
) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    `master` None takes what spark-submit was given, or else local[*]. `settings` overrule all others.
    `java` is further options for a local JVM. `lasting` is for a job without an end: its queries are worth optimising.
    ConfigurationError says in a sentence why there can be none: no pyspark, no Java, a master that does not answer.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError("this needs Spark: pip install 'homing[analysis]'") from error

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted and (problem := java_problem()):
        raise ConfigurationError(problem)
    builder = SparkSession.builder.appName(name)
    if not submitted or master is not None:
        builder = builder.master(master or "local[*]")
    with tempfile.TemporaryDirectory(prefix="homing-spark-") as scratch:
        local = not submitted and (master or "local").startswith("local")
        chosen = {**COMMON, **(_local(Path(scratch), java, lasting=lasting) if local else {}), **(settings or {})}
        for key, value in chosen.items():
            builder = builder.config(key, value)
        said = Path(scratch) / "said"
        try:
            with _output_to(said) if local else nullcontext():
                spark = builder.getOrCreate()
        except Exception as error:  # py4j raises whatever the JVM did
            raise ConfigurationError(
                f"Spark did not start with master {master or 'local[*]'}: {_reason(error, said)}"
            ) from error
        try:
            yield spark
        finally:
            _stop(spark)


COMMON: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a bad value is null and counted, not the end of the job
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.filterPushdown": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # hour=07 is text
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # files are listed by their names
    "spark.sql.caseSensitive": "true",
    "spark.sql.codegen.cache.maxEntries": "2000",  # an analysis has some hundred; the default, 100, forgets them all
}
"""The same everywhere, as the results and what they cost depend on it."""


_JAVA_FLAGS: Final = "-XX:+UseParallelGC -Xss4m -XX:MaxDirectMemorySize=256m"
_NO_LOGS: Final = """\
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""


def _local(scratch: Path, java: str, *, lasting: bool) -> dict[str, str]:
    """What suits one machine: few partitions, no web server, all files in one folder that goes away."""
    quiet = scratch / "log4j2.properties"
    quiet.write_text(_NO_LOGS, encoding="utf-8")
    compiler = "" if lasting else quick_compiler(scratch / "directives.json")
    options = f"-Dlog4j2.configurationFile={quiet} -Dderby.system.home={scratch} {_JAVA_FLAGS} {compiler} {java}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": options.strip(),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.files.maxPartitionBytes": "64m",
        "spark.sql.files.openCostInBytes": "262144",
    }


@contextmanager
def _output_to(file: Path) -> Iterator[None]:
    """The JVM inherits standard output and standard error, and greets there with remarks about itself."""
    sys.stdout.flush()
    before = {stream: os.dup(stream) for stream in (1, 2)}
    with file.open("wb") as target:
        for stream in before:
            os.dup2(target.fileno(), stream)
    try:
        yield
    finally:
        for stream, kept in before.items():
            os.dup2(kept, stream)
            os.close(kept)


def _reason(error: Exception, said: Path) -> str:
    """The first line of what went wrong, and what the JVM said last."""
    lines = str(error).strip().splitlines()[:1] or [type(error).__name__]
    if said.exists():
        lines += [line for line in said.read_text(errors="replace").splitlines() if line.strip()][-1:]
    return "; ".join(lines)


def _stop(spark: SparkSession) -> None:
    """Stop the session, and the JVM that it was the only user of."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = spark.sparkContext._gateway  # noqa: SLF001 - nothing public ends the JVM
    with suppress(Py4JError, OSError):  # the JVM may have ended already
        spark.stop()
    if gateway is not None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        SparkContext._gateway = None  # noqa: SLF001 - so that the next session starts a JVM
        SparkContext._jvm = None  # noqa: SLF001
