"""One Spark for all tests of the analysis: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from app.analysis.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Optimising what runs but a few times would take half of the processor time.
    quick = "-XX:TieredStopAtLevel=1"
    with spark_session("homing tests", "local[2]", {"spark.sql.shuffle.partitions": "2"}, java=quick) as session:
        yield session
