"""Sessions of Spark: wrong masters, too little memory, a cluster of two workers, and nothing private of PySpark."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date as date_of
from pathlib import Path

import pyspark
import pytest

from app.analysis.analyze import analyze
from app.analysis.options import DAY, AnalyzeOptions
from app.analysis.session import check_master, spark_session
from app.core.errors import ConfigurationError
from tests.analysis.results import rolled
from tests.analysis.small_logs import outcome, write

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
PATIENCE = 1200
"""Seconds after which what hangs is ended: four JVMs share what a busy machine leaves them."""


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("spak://host:7077", "no master of Spark; allowed: local"),
        ("spark://host", "needs a port, such as spark://host:7077"),
        ("spark://localhost:{closed}", "nobody answers there: Connection refused"),
        ("sc://localhost:{closed}", "nobody answers there: Connection refused"),
    ],
)
def test_a_wrong_master_is_a_sentence_at_once(master: str, sentence: str) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        closed = taken.getsockname()[1]
    with pytest.raises(ConfigurationError, match=sentence):
        check_master(master.format(closed=closed))


def test_a_master_that_is_right_is_let_through() -> None:
    with socket.create_server(("localhost", 0)) as master:
        port = master.getsockname()[1]
        for good in ("local", "local[*]", "local[2, 3]", "yarn", "k8s://https://x", f"spark://localhost:{port}"):
            check_master(good)


def test_a_heap_that_is_no_size_is_a_sentence() -> None:
    with (
        pytest.raises(ConfigurationError, match="--memory 'much'; allowed: a number with m or g"),
        spark_session("no", memory="much"),
    ):
        pass


FULL = """
from app.analysis.session import failures_as_sentences, spark_session
with spark_session("full", "local[1]", memory="512m", java="-XX:TieredStopAtLevel=1") as spark:
    with failures_as_sentences(spark):
        spark.sql("SELECT max(length(repeat(cast(id AS STRING), 1000000000))) FROM range(3)").collect()
"""


def test_a_full_memory_is_a_sentence() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Spark ran out of its memory of 512m: give it more with --memory 4g" in done.stderr


ENDED = """
import os, signal, subprocess, sys
from app.analysis.session import failures_as_sentences, spark_session
with spark_session("ended", "local[1]", memory="512m", java="-XX:TieredStopAtLevel=1") as spark:
    (jvm,) = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True).stdout.split()
    with failures_as_sentences(spark):
        os.kill(int(jvm), getattr(signal, sys.argv[1]))
        os.waitid(os.P_PID, int(jvm), os.WEXITED | os.WNOWAIT)
        spark.sql("SELECT count(*) FROM range(3)").collect()
"""


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        ("SIGKILL", "Spark's JVM ended in the middle: it said nothing, so something killed it"),
        ("SIGSEGV", "Spark's JVM ended in the middle: SIGSEGV (0xb)"),
    ],
)
def test_a_jvm_that_is_gone_is_not_said_to_lack_memory(by: str, sentence: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENDED, by], cwd=ROOT, capture_output=True, text=True, check=False)
    assert sentence in done.stderr, done.stderr


@pytest.mark.parametrize(("day", "flag"), [("2026-01-01", ""), ("2026-01-02", "-XX:TieredStopAtLevel=1")])
def test_the_days_that_are_asked_for_decide_whether_optimising_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: str, flag: str
) -> None:
    for date, size in (("2026-01-01", 256 * 2**20), ("2026-01-02", 1)):
        folder = tmp_path / "log" / f"date={date}" / "hour=00"
        folder.mkdir(parents=True)
        with (folder / "node-a-1-000001.parquet").open("wb") as file:
            file.truncate(size)
    asked = []

    def started(*_: object, java: str, **__: object) -> None:
        asked.append(java)
        raise ConfigurationError("far enough")

    monkeypatch.setattr("app.analysis.analyze.spark_session", started)
    begin = date_of.fromisoformat(day)
    options = AnalyzeOptions(
        out=str(tmp_path / "out"), log=str(tmp_path / "log"), steps=("compact",), begin=begin, end=begin + DAY
    )
    with pytest.raises(ConfigurationError, match="far enough"):
        analyze(options)
    assert asked == [flag]


def test_nothing_private_of_pyspark_is_used() -> None:
    """So that a session of Spark Connect, which has no JVM of its own, will do."""
    members = r"\.(?:_jvm|_jsc|_jdf|_jsparkSession|_jwrapped|_gateway|sparkContext|rdd)\b"
    private = re.compile(rf"{members}|createDataFrame|\budf\(")
    for file in (ROOT / "app" / "analysis").rglob("*.py"):
        assert not private.search(file.read_text(encoding="utf-8")), file


QUICK = "-XX:TieredStopAtLevel=1"
"""Optimising what runs but a few times would take most of the processor time."""
STARTED = re.compile(r"(?:Starting Spark master at|Successfully registered with master) (\S+)")


@contextmanager
def part(*arguments: str) -> Iterator[str]:
    """A master or worker of Spark, for as long as it is needed; the line with which it says that it has started."""
    with tempfile.NamedTemporaryFile("w+") as said, tempfile.TemporaryDirectory() as work:
        command = [str(SPARK / "bin" / "spark-class"), *arguments, "--host", "127.0.0.1", "--port", "0"]
        environment = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_WORKER_DIR": work, "SPARK_NO_DAEMONIZE": "1"}
        environment["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=1"
        environment["SPARK_DAEMON_JAVA_OPTS"] = QUICK
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment, cwd=work)
        try:
            while (found := STARTED.search(Path(said.name).read_text())) is None:
                assert process.poll() is None, Path(said.name).read_text()
                time.sleep(0.1)  # what another process writes has no event
            yield found[1]
        finally:
            process.kill()
            process.wait()


@pytest.mark.timeout(PATIENCE)
@pytest.mark.long
def test_spark_submit_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    """As documented; executors find no Python, and need none."""
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100 + number, home_node=f"node-{number % 3}") for number in range(60)])
    with ExitStack() as cluster:
        master = cluster.enter_context(part("org.apache.spark.deploy.master.Master", "--webui-port", "0"))
        for _ in range(2):
            worker = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "600m", "--webui-port", "0")
            cluster.enter_context(part(*worker, master))
        job = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("spark-submit")), "--master", master, "--driver-memory", "600m"),
                *("--executor-memory", "500m", "--conf", "spark.sql.shuffle.partitions=2"),
                *("--driver-java-options", QUICK, "--conf", f"spark.executor.extraJavaOptions={QUICK}"),
                *(str(ROOT / "app" / "cli" / "submit.py"), "analyze", str(log), "--out", str(out)),
                *("--from", "2026-01-05", "--to", "2026-01-06"),
            ],
            env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "/no/python"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert job.returncode == 0, job.stdout[-3000:] + job.stderr[-3000:]
    by_node = rolled(out, "node, sum(commands)::BIGINT", "latency_hourly", "GROUP BY ALL ORDER BY ALL")
    assert by_node == [("node-0", 20), ("node-1", 20), ("node-2", 20)]


@pytest.mark.timeout(PATIENCE)
def test_a_cluster_whose_executors_fail_is_said_by_its_name(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100) for number in range(6)])
    with ExitStack() as cluster:
        master = cluster.enter_context(part("org.apache.spark.deploy.master.Master", "--webui-port", "0"))
        worker = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "600m", "--webui-port", "0")
        cluster.enter_context(part(*worker, master))
        job = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("spark-submit")), "--master", master, "--driver-memory", "600m"),
                *("--executor-memory", "500m", "--conf", "spark.executor.extraJavaOptions=-agentlib:nothing"),
                *("--driver-java-options", QUICK),
                *(str(ROOT / "app" / "cli" / "submit.py"), "analyze", str(log), "--out", str(out)),
            ],
            env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
    said = " ".join(job.stdout.split())  # where spark-submit brings what its program says on either
    assert job.returncode == 2, said[-3000:] + job.stderr[-3000:]
    assert f"the master {master} ended the application, as its executors failed" in said, said[-3000:]
