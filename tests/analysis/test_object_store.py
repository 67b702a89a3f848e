"""OUT and the log in an object store that speaks S3 (moto's server): what Arrow reads and writes there.

Spark's part needs `hadoop-aws`, which is published for Maven alone; here it only says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from app.analysis.analyze import analyze, run
from app.analysis.compact import list_log
from app.analysis.options import AnalyzeOptions
from app.analysis.places import LogFolder
from app.analysis.source import LATENCY
from app.core.errors import ConfigurationError
from tests.analysis.results import analysis
from tests.analysis.small_logs import outcome, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "some",
        "AWS_SECRET_ACCESS_KEY": "body",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with urlopen(Request(f"http://{host}:{port}/results", method="PUT"), timeout=120):
        yield "results"
    server.stop()


def put(folder: Path, place: LogFolder) -> LogFolder:
    there = LogFolder(str(folder))
    for path in there.find():
        place.write(path, there.read(path))
    return place


def test_a_report_is_made_of_counts_in_a_bucket(spark: SparkSession, tmp_path: Path, bucket: str) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100 + number) for number in range(60)])
    here = analysis(spark, log, out)
    place = LogFolder(f"s3a://{bucket}/out")
    for name in ("manifest", "rollups"):
        put(out / name, LogFolder(f"{place.name}/{name}"))
    there = analyze(AnalyzeOptions(out=place.name, steps=("report",)))
    assert there["figures"] == here["figures"]
    wanted = {path for path in LogFolder(str(out)).find() if not path.startswith("clean")}
    assert set(place.find()) == wanted
    for path in wanted - {"report.html", "summary.json"}:  # which say where the log is
        assert place.read(path) == (out / path).read_bytes(), path
    again = analyze(AnalyzeOptions(out=place.name, steps=("report",)))
    assert again == there
    assert set(place.find()) == wanted


def test_the_files_of_a_log_in_a_bucket_are_listed_by_day(tmp_path: Path, bucket: str) -> None:
    write(tmp_path, [outcome(3600 * number, 100) for number in range(30)])
    place = put(tmp_path, LogFolder(f"s3://{bucket}/log"))
    there, here = list_log(LATENCY, place.name), list_log(LATENCY, str(tmp_path))
    sizes = [
        {date: {path: file.size for path, file in files.items()} for date, files in one.by_date.items()}
        for one in (there, here)
    ]
    assert sizes[0] == sizes[1]
    assert there.strays == here.strays
    day = ["2026-01-06"]
    assert list(list_log(LATENCY, place.name, day).by_date) == day


def test_a_bucket_that_is_not_there_is_a_sentence(bucket: str) -> None:
    with pytest.raises(ConfigurationError, match=r"s3://other/log: .*NO_SUCH_BUCKET"):
        LogFolder("s3://other/log").write("a", b"")


def test_spark_says_what_it_lacks_for_a_bucket(spark: SparkSession, tmp_path: Path, bucket: str) -> None:
    """It comes with `--packages org.apache.hadoop:hadoop-aws`."""
    write(tmp_path, [outcome(0, 100)])
    place = put(tmp_path, LogFolder(f"s3://{bucket}/log"))
    with pytest.raises(ConfigurationError, match=r"org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem not found"):
        run(spark, AnalyzeOptions(log=place.name, out=str(tmp_path / "out")))
