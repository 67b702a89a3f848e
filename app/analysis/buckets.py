"""Buckets of 2 %: what percentiles are computed from. Bucket b holds the whole numbers from 1.02^b to under 1.02^(b+1).

Counts per bucket can be added up over any hours, devices and nodes, which percentiles cannot.
"""

from __future__ import annotations

import math
from typing import Final

RELATIVE_ERROR: Final = 0.01
"""The largest error of a percentile, besides half a microsecond: a value is taken as the middle of its bucket."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def bucket(value: str) -> str:
    """The bucket of a whole number of 0 or more, in SQL: -1 of 0, null of null."""
    return f"CAST(IF({value} < 1, -1, floor(ln({value}) / {math.log(1.02)!r}D)) AS INT)"
