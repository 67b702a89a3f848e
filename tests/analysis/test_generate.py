"""`homing generate-log`: the log of nodes, the same for the same seed, with anomalies whose truth is known."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from app.analysis.generate import generate, records
from app.analysis.plant import GenerateOptions, read_plants
from app.core.errors import ConfigurationError
from app.latency.arrow import SCHEMA

EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "anomalies.toml"


def asked(out: Path, plant: Path | None = None, **other: Any) -> GenerateOptions:
    return GenerateOptions(**{"callbacks": 5000, "out": out, "plant": plant, "days": 3, "nodes": 2, **other})


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("x", "Expected '=' after a key"),
        ("anomalies = 1", r"anomalies: allowed: \[\[anomaly\]\] tables, and nothing else"),
        ("anomaly = 1", r"anomaly: allowed: \[\[anomaly\]\] tables, and nothing else"),
        ("[[anomaly]]", "anomaly 1: kind is missing; allowed: slow_node, flaky_firmware, bad_hour, slow_method"),
        ('[[anomaly]]\nkind = "slow"', "anomaly 1: kind is slow; allowed: slow_node"),
        ('[[anomaly]]\nkind = ["slow"]', r"anomaly 1: kind is \['slow'\]; allowed: slow_node"),
        ('[[anomaly]]\nkind = "slow_node"\nhour = 1', "unknown key hour; slow_node has factor, node"),
        ('[[anomaly]]\nkind = "slow_node"\nnode = "node-z"', "node is 'node-z'; allowed: node-a, node-b"),
        ('[[anomaly]]\nkind = "slow_node"\nfactor = 0.5', "factor is 0.5; allowed: over 1, up to 100"),
        ('[[anomaly]]\nkind = "bad_hour"\nhour = 72', "hour is 72; allowed: a whole number from 0 to 71"),
        ('[[anomaly]]\nkind = "bad_hour"\nhour = true', "hour is True; allowed: a whole number"),
        ('[[anomaly]]\nkind = "slow_method"\nsince_day = 0', "since_day is 0; allowed: a whole number from 1 to 2"),
        ('[[anomaly]]\nkind = "flaky_firmware"\nshare = "much"', "share is 'much'; allowed: over 0, up to 1"),
        ('[[anomaly]]\nkind = "bad_hour"\nhour = 1\n' * 2, "anomaly 2: hour 2026-01-05T01:00Z is planted already"),
    ],
)
def test_a_wrong_plant_is_refused_with_key_and_what_is_allowed(tmp_path: Path, toml: str, sentence: str) -> None:
    path = tmp_path / "plants.toml"
    path.write_text(toml, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=sentence) as error:
        read_plants(asked(tmp_path, path))
    assert str(path) in str(error.value)


def test_what_a_plant_leaves_open_the_seed_decides() -> None:
    options = [asked(Path(), EXAMPLE, seed=seed) for seed in (1, 1, 2, 3)]
    assert len({tuple(one["subject"] for one in read_plants(each)) for each in options}) == 3


def test_a_change_from_one_day_to_the_next_needs_two(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="anomaly 4: since_day: what changes from one day to the next needs --days 2 or more"
    ):
        read_plants(asked(tmp_path, EXAMPLE, days=1))


@pytest.mark.parametrize("name", ["callbacks", "days", "nodes", "devices"])
def test_what_is_asked_for_is_bounded(tmp_path: Path, name: str) -> None:
    for value in (0, 10**11):
        with pytest.raises(ConfigurationError, match=f"--{name} is {value:,}; allowed: 1 to "):
            asked(tmp_path, None, **{name: value})


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigurationError, match="there is something in it"):
        generate(asked(tmp_path))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("generated") / "log"
    return out, generate(asked(out, EXAMPLE, callbacks=20_000, seed=7, days=2, nodes=3))


def test_the_log_is_as_nodes_write_it(generated: tuple[Path, dict[str, Any]]) -> None:
    out, result = generated
    files = sorted(out.glob("date=*/hour=*/*.parquet"))
    assert len(files) == result["files"]
    assert pq.read_schema(files[0]).equals(SCHEMA)
    for file in files:
        rows = pq.read_table(file, partitioning=None)
        begin = rows["recorded_at"][0].as_py()
        assert file == next(out.glob(f"{begin:date=%Y-%m-%d/hour=%H}/{rows['writing_node'][0]}-1-*{file.name[-8:]}"))
        assert len({(f"{row['recorded_at']:%d %H}", row["writing_node"]) for row in rows.to_pylist()}) == 1
    whole = duckdb.sql(
        f"SELECT count(*), count(DISTINCT command_id), count(DISTINCT home_node), count(DISTINCT method), "
        f"count_if(woken_at < recorded_at OR recorded_at < received_at OR received_at < published_at), "
        f"count_if(forwarded != (home_node != receiving_node)), count(DISTINCT outcome) "
        f"FROM read_parquet('{out}/date=*/hour=*/*.parquet') WHERE kind = 'outcome'"
    )
    assert whole is not None
    assert whole.fetchall()[0] == (20_000, 20_000, 3, 10, 0, 0, 5)


def test_the_truth_lies_beside_the_log_where_readers_do_not_look(generated: tuple[Path, dict[str, Any]]) -> None:
    out, result = generated
    assert json.loads((out / "_truth.json").read_text(encoding="utf-8")) == result
    assert [one["kind"] for one in result["anomalies"]] == ["node", "device_group", "hour", "method"]


def test_the_same_seed_gives_the_same_records_in_however_many_slices(tmp_path: Path) -> None:
    def made(seed: int, *ends: int) -> set[tuple[object, ...]]:
        options = asked(tmp_path, seed=seed, devices=100)
        with duckdb.connect() as base:
            tables = [records(base, options, (), begin, end) for begin, end in pairwise(ends)]
        return {tuple(map(str, row.values())) for table in tables for row in table.to_pylist()}

    whole = made(1, 0, 5000)
    assert made(1, 0, 2000, 5000) == whole
    assert not made(2, 0, 5000) & whole
