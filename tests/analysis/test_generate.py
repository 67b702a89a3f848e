"""`homing generate-log`: the log of nodes, the same for the same seed, with anomalies whose truth is known."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from app.analysis.generate import Generated, GenerateOptions, generate, records
from app.analysis.plant import Shape, read_plants
from app.core.errors import ConfigurationError
from app.latency.arrow import SCHEMA

EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "anomalies.toml"
SHAPE = Shape(datetime(2026, 1, 5, tzinfo=UTC), 3, ("node-a", "node-b"))


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("x", "not TOML"),
        ("anomalies = 1", r"unknown key anomalies; allowed: \[\[anomaly\]\] tables"),
        ("anomaly = 1", "anomaly must be a list of tables"),
        ("[[anomaly]]", "anomaly 1: kind is missing; allowed: slow_node, flaky_firmware, bad_hour, slow_method"),
        ('[[anomaly]]\nkind = "slow"', "anomaly 1: kind is 'slow'; allowed: slow_node"),
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
        read_plants(path, SHAPE, 1)
    assert str(path) in str(error.value)


def test_what_a_plant_leaves_open_the_seed_decides() -> None:
    subjects = {tuple(one.subject for one in read_plants(EXAMPLE, SHAPE, seed)) for seed in (1, 1, 2, 3)}
    assert len(subjects) == 3


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigurationError, match="there is something in it"):
        generate(GenerateOptions(callbacks=10, out=tmp_path))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Generated]:
    out = tmp_path_factory.mktemp("generated") / "log"
    options = GenerateOptions(callbacks=20_000, out=out, seed=7, plant=EXAMPLE, days=2)
    return out, generate(options)


def test_the_log_is_as_nodes_write_it(generated: tuple[Path, Generated]) -> None:
    out, result = generated
    files = sorted(out.glob("date=*/hour=*/*.parquet"))
    assert len(files) == result.files
    assert pq.read_schema(files[0]).equals(SCHEMA)
    whole = duckdb.sql(
        f"SELECT count(*), count(DISTINCT command_id), count(DISTINCT home_node), count(DISTINCT method), "
        f"count_if(woken_at < recorded_at OR recorded_at < received_at OR received_at < published_at), "
        f"count_if(forwarded != (home_node != receiving_node)), count(DISTINCT outcome) "
        f"FROM read_parquet('{out}/date=*/hour=*/*.parquet') WHERE kind = 'outcome'"
    )
    assert whole is not None
    assert whole.fetchall()[0] == (20_000, 20_000, 3, 10, 0, 0, 5)


def test_the_truth_lies_beside_the_log_where_readers_do_not_look(generated: tuple[Path, Generated]) -> None:
    out, result = generated
    assert json.loads((out / "_truth.json").read_text(encoding="utf-8")) == result.truth
    assert [one["kind"] for one in result.truth["anomalies"]] == ["node", "device_group", "hour", "method"]


def test_the_same_seed_gives_the_same_records_in_however_many_slices(tmp_path: Path) -> None:
    shape = Shape(SHAPE.start, 1, SHAPE.nodes)

    def made(seed: int, *ends: int) -> set[tuple[object, ...]]:
        options = GenerateOptions(callbacks=5000, out=tmp_path, seed=seed, devices=100)
        with duckdb.connect() as base:
            tables = [records(base, options, shape, (), begin, end) for begin, end in pairwise(ends)]
        return {tuple(map(str, row.values())) for table in tables for row in table.to_pylist()}

    whole = made(1, 0, 5000)
    assert made(1, 0, 2000, 5000) == whole
    assert not made(2, 0, 5000) & whole
