"""The Spark session of all jobs: on this machine alone by default, on a cluster or by Spark Connect when told so."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_NEEDED: Final = 17
MEMORY: Final = "1280m"
"""Heap of the one JVM of a local run. With its code, stacks and direct buffers and Python 2.5 GiB were seen."""
_HEAP: Final = "spark.driver.memory"
_MASTER: Final = "spark.master"
_SAID: Final = "spark.homing.said"
_NO_MEMORY: Final = re.compile("OutOfMemory|Java heap space|GC overhead|Unable to acquire")
_ENDED: Final = re.compile("stopped SparkContext|[Mm]aster removed our application|Application has been killed")
_WORDS: Final = re.compile(
    r"java\.lang\.OutOfMemoryError.*|SIG[A-Z]+ \(.*|Internal Error.*|.*insufficient memory.*|# [CJVj] +\[?.*"
)
"""Matches the cause and the frame in the text that HotSpot prints when it ends by itself
(hotspot/share/utilities/vmError.cpp)."""

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a bad value is null and counted, not the end of the job
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.maxPartitionBytes": "128m",
    "spark.sql.maxConcurrentOutputFileWriters": "4",  # so few days are written side by side, more are sorted first
    "spark.sql.files.openCostInBytes": "262144",  # so that compaction puts some hundred small files into one
}
"""The settings on which results and their cost depend. Any session that a job is given gets them, and loses them after
it."""


@contextmanager
def prepared(spark: SparkSession, settings: Mapping[str, str] = SETTINGS) -> Iterator[None]:
    """Settings hold inside; failures of Spark are said in a sentence."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        with failures_as_sentences(spark):
            yield
    finally:
        with suppress(Exception):  # the JVM may have ended
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)


@contextmanager
def failures_as_sentences(spark: SparkSession) -> Iterator[None]:
    """ConfigurationError instead of what Spark raises."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    heap, said, master = (spark.conf.get(key, None) for key in (_HEAP, _SAID, _MASTER))  # afterwards it may be gone
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        words = ""
        with suppress(OSError):  # the JVM writes why it ended where it wrote its greeting
            words = " ".join(_WORDS.findall(Path(said or "").read_text(errors="replace")))
        if _NO_MEMORY.search(_text(error) + words):
            of = f"its memory of {heap or MEMORY}"
            sentence = f"Spark ran out of {of}: give it more with --memory 4g, or fewer days at once"
        elif _ENDED.search(_text(error)):
            sentence = _ended_by(master or "?")
        elif _is_gone(error):
            sentence = f"Spark's JVM ended in the middle: {words or 'it said nothing, so something killed it'}"
        else:
            sentence = f"Spark failed: {_first_line(error)}"
        raise ConfigurationError(sentence) from error


def _ended_by(master: str) -> str:
    """When executors fail over and over, a master removes the application, and its context is found stopped."""
    return f"the master {master} ended the application, as its executors failed: the logs of its workers say why"


def _submitted_to() -> str:
    """The master that spark-submit was given."""
    from pyspark import SparkConf  # noqa: PLC0415 - an extra

    with suppress(Exception):  # the JVM may have ended
        return str(SparkConf().get(_MASTER, "of spark-submit"))
    return "of spark-submit"


def is_hopeless(error: Exception) -> bool:
    """True if another try with less at once is of no use: there is no memory, or the JVM is gone."""
    return _NO_MEMORY.search(_text(error)) is not None or _is_gone(error)


def _is_gone(error: Exception) -> bool:
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - an extra

    text = _text(error)  # what py4j cannot ask for does not exist, says py4j
    signs = not text or "Connection refused" in text or "does not exist in the JVM" in text
    return signs or isinstance(error, (Py4JNetworkError, ConnectionError))


def _first_line(error: Exception) -> str:
    """If the JVM is still there to ask; what py4j called is nobody's business."""
    lines = (line.strip(": ") for line in _text(error).splitlines())
    return next((line for line in lines if line and "occurred while calling" not in line), type(error).__name__)


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - py4j asks the JVM for the text, which may be gone
        return ""


def mebibytes(memory: str) -> int:
    """The size of a heap such as 4g, in MiB; ConfigurationError when it is no size."""
    if not re.fullmatch(r"[1-9]\d*[mg]", memory, re.ASCII):
        raise ConfigurationError(f"--memory {memory[:32]!a}; allowed: a number with m or g behind it, such as 4g")
    return int(memory[:-1]) * (1024 if memory.endswith("g") else 1)


def java_problem() -> str | None:
    """Say in a sentence why Spark cannot start for want of Java; None when it can."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    problem = f"there is no java in JAVA_HOME, {home}" if home else "there is no java on the PATH"
    if found is not None:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
        version = re.search(r'version "(\d+)', said.stderr + said.stdout)
        if version is not None and int(version[1]) >= JAVA_NEEDED:
            return None
        problem = f"`{found}` is Java {version[1]}" if version else f"`{found} -version` says no version"
    advice = "on Debian or Ubuntu run 'apt install openjdk-17-jre-headless'"
    return f"Spark needs Java {JAVA_NEEDED} or newer, and {problem}: {advice}."


def check_master(master: str) -> None:
    """ConfigurationError when it cannot be a master, or nobody listens there: Spark itself takes minutes to say so."""
    if re.fullmatch(r"local(\[(\*|\d+)(, *\d+)?\])?|yarn|k8s://.+", master):
        return
    found = re.fullmatch(r"(?:spark|sc)://([^/]+)(?:/.*)?", master)
    if found is None:
        raise ConfigurationError(
            f"--master {master[:64]!a}: no master of Spark; allowed: local[*], spark://host:7077, yarn, k8s://…, sc://…"
        )
    problem = ""
    for address in found[1].split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"--master {master[:64]!a}: needs a port, such as spark://host:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            problem = error.strerror or str(error)
    raise ConfigurationError(f"--master {master[:64]}: nobody answers there: {problem}")


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    memory: str = MEMORY,
    java: str = "",
) -> Iterator[SparkSession]:
    """A session that is stopped at the end; ConfigurationError says in a sentence why there can be none.

    `master` None takes what spark-submit was given, or else local[*]; `sc://` is a server of Spark Connect.
    `settings` overrule all others; `memory` is the heap of the JVM that is started here, `java` further options for it.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError("this needs Spark: pip install 'homing[analysis]'") from error

    mebibytes(memory)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    remote = master is not None and master.startswith("sc://")
    if not submitted and not remote and (problem := java_problem()):
        raise ConfigurationError(problem)
    if master is not None:
        check_master(master)
    builder = SparkSession.builder.appName(name)
    if remote:
        builder = builder.remote(str(master))
    elif not submitted or master is not None:
        builder = builder.master(master or "local[*]")
    with tempfile.TemporaryDirectory(prefix="homing-spark-", ignore_cleanup_errors=True) as scratch:
        said = Path(scratch) / "said"
        here = {} if submitted or remote else _started_here(said, master or "local[*]", memory, java)
        for key, value in {**here, **(settings or {})}.items():
            builder = builder.config(key, value)
        try:
            with _output_to(said) if here else nullcontext():
                spark = builder.getOrCreate()
        except Exception as error:  # py4j raises whatever the JVM did, Connect whatever gRPC did
            words = said.read_text(errors="replace").strip().splitlines() if said.exists() else []
            reason = "; ".join([_first_line(error), *words[-1:]])
            named = master or (_submitted_to() if submitted else "local[*]")
            sentence = f"Spark did not start with master {named}: {reason}"
            raise ConfigurationError(_ended_by(named) if _ENDED.search(_text(error)) else sentence) from error
        try:
            yield spark
        finally:
            with suppress(Exception):  # the JVM may have ended already
                spark.stop()


def _started_here(said: Path, master: str, memory: str, java: str) -> dict[str, str]:
    """The JVM that this process starts: it ends with this process, and says nothing that a person has not asked for."""
    scratch = said.parent
    quiet = scratch / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n", encoding="utf-8")
    flags = "-XX:+UseParallelGC -Xss4m -XX:MaxDirectMemorySize=256m -XX:+ExitOnOutOfMemoryError"
    files = f"-Dlog4j2.configurationFile={quiet} -Dderby.system.home={scratch} -XX:ErrorFile={scratch}/crash.log"
    settings = {
        _HEAP: memory,
        _SAID: str(said),
        "spark.driver.extraJavaOptions": f"{files} {flags} {java}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.codegen.cache.maxEntries": "2000",  # the default, 100, forgets them all between two days
    }
    if not master.startswith("local"):
        return settings
    return settings | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
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
