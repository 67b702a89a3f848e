"""One Spark for all tests of the analysis: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from app.analysis.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS: Final = ("test_events.py", "test_real_log.py")
"""The tests of what other parts of Homing write, and the analysis reads. All others are of the analysis alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what need not be run again while nothing of the analysis has changed."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name not in ALWAYS:
            item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Optimising what runs but a few times would take half of the processor time.
    quick = "-XX:TieredStopAtLevel=1"
    with spark_session("homing tests", "local[2]", {"spark.sql.shuffle.partitions": "2"}, java=quick) as session:
        yield session
