"""Statistics as SQL expressions: intervals, tests and percentiles, all on counts."""

from __future__ import annotations

from typing import Final

Z95: Final = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
QUANTILES: Final = {"p50": "0.5D", "p90": "0.9D", "p99": "0.99D", "p999": "0.999D"}


def wilson(hits: str, of: str, sign: str) -> str:
    """An end ('-' or '+') of Wilson's 95 % interval of a share, which lies in it though doubles are rounded."""
    z2 = Z95 * Z95
    root = f"sqrt(({hits}) * 1D / ({of}) * (1 - ({hits}) * 1D / ({of})) / ({of}) + {z2 / 4}D / (({of}) * 1D * ({of})))"
    centre = f"(({hits}) * 1D / ({of}) + {z2 / 2}D / ({of}))"
    outer = "least" if sign == "-" else "greatest"
    return f"{outer}(({hits}) * 1D / ({of}), ({centre} {sign} {Z95}D * {root}) / (1 + {z2}D / ({of})))"


def two_sided(z: str) -> str:
    """The p-value of a standard normal z: Abramowitz and Stegun 26.2.17, off by less than 1.5e-7."""
    t = f"(1 / (1 + 0.2316419D * abs({z})))"
    poly = "1.330274429D"
    for factor in (-1.821255978, 1.781477937, -0.356563782, 0.319381530, 0):
        poly = f"({factor}D + {t} * {poly})"
    return f"least(1D, greatest(0D, 2 * exp(-({z}) * ({z}) / 2) * 0.3989422804014327D * {poly}))"


def adjusted(tests: str, family: str) -> str:
    """A query that adds `q`, the p-value after Benjamini and Hochberg, to the rows of the query or CTE named `tests`.

    `family` is a list of columns: tests with equal values there are corrected together; empty for all.
    """
    part = f"PARTITION BY {family}" if family else ""
    return f"""\
SELECT *, min(p_ranked) OVER ({part} ORDER BY p DESC) AS q
FROM (
  SELECT *, least(1D, p * count(*) OVER ({part}) / count(*) OVER ({part} ORDER BY p)) AS p_ranked FROM {tests}
)"""


def ranked(source: str, grain: str) -> str:
    """A query over cells (columns of the grain, bucket, n, s, m, low, high, middle) that ranks them: upto and of."""
    by = f"PARTITION BY {grain} " if grain else ""
    return f"""\
SELECT *, sum(n) OVER ({by}ORDER BY bucket) AS upto,
  sum(n) OVER ({by.strip()}) AS of FROM ({source})"""


def quantiles(prefix: str = "", where: str = "true") -> str:
    """Aggregates over ranked cells: nearest-rank percentiles, maximum and mean, as columns named like in the tables."""
    # Rows of one bucket may differ in their longest: it bounds what is taken, and not which row.
    rows = [
        f"least(min(CASE WHEN {where} AND upto >= ceil({q} * of - 1e-6D) THEN middle END), "
        f"max(CASE WHEN {where} THEN m END)) AS {prefix}{name}_us"
        for name, q in QUANTILES.items()
    ]
    rows.append(f"max(CASE WHEN {where} THEN m END) AS {prefix}max_us")
    mean = f"sum(CASE WHEN {where} THEN s END) / sum(CASE WHEN {where} THEN n END)"
    rows.append(f"CAST(round({mean}) AS BIGINT) AS {prefix}mean_us")
    return ",\n  ".join(rows)


def rank_interval(quantile: float, where: str = "true") -> tuple[str, str]:
    """Aggregates over ranked cells: the ends of the 95 % order-statistic interval of a percentile."""
    spread = f"{Z95}D * sqrt(of * {quantile * (1 - quantile)}D)"
    low = f"min(CASE WHEN {where} AND upto >= greatest(1, floor(of * {quantile}D - {spread})) THEN low END)"
    high = (
        f"least(min(CASE WHEN {where} AND upto >= least(of, ceil(of * {quantile}D + {spread}) + 1) THEN high END), "
        f"max(CASE WHEN {where} THEN m END))"
    )
    return low, high
