"""The doctor on a Redis Cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.cli.cluster_diagnosis import about_cluster
from app.cli.diagnosis import CheckLevel
from app.store.redis.doctor import ClusterFacts
from tests.unit.cli.test_diagnosis import GOOD_REDIS

ONE = replace(GOOD_REDIS, mode="cluster", place="r1:6379", replicas=1)
GOOD = ClusterFacts([ONE, replace(ONE, place="r2:6379")], ["ok", "ok"], partitions=[120, 136], node_timeout_ms=1500)


def test_nothing_is_wrong_with_a_good_one_and_what_is_right_is_said_once() -> None:
    said = list(about_cluster(GOOD))
    assert {one.level for one in said} == {CheckLevel.OK}
    assert len({one.subject for one in said}) == len(said)
    assert {"partitions", "fail-over"} <= {one.subject for one in said}


def test_what_a_server_does_not_tell_is_not_said() -> None:
    said = {one.subject for one in about_cluster(replace(GOOD, partitions=(), node_timeout_ms=None))}
    assert said.isdisjoint(("partitions", "fail-over"))


@pytest.mark.parametrize(
    ("facts", "level", "subject", "seen"),
    [
        (replace(GOOD, states=["ok", "fail"]), CheckLevel.FAIL, "Redis Cluster", "r2:6379: cluster_state"),
        (replace(GOOD, bus_works=False), CheckLevel.FAIL, "cluster bus", "does not come to another"),
        (replace(GOOD, primaries=[ONE, replace(ONE, replicas=0, place="r2")]), CheckLevel.WARN, "replicas", "r2"),
        (replace(GOOD, primaries=[replace(ONE, wanted_replicas=2)]), CheckLevel.FAIL, "replicas", "r1:6379"),
        (replace(GOOD, primaries=[ONE, replace(ONE, clock=0.5)]), CheckLevel.WARN, "clocks", "0.50 s apart"),
        (replace(GOOD, primaries=[ONE, replace(ONE, clock=-3)]), CheckLevel.FAIL, "clocks", "3.00 s apart"),
        (replace(GOOD, partitions=[80, 176]), CheckLevel.WARN, "partitions", "80 : 176"),
        (replace(GOOD, node_timeout_ms=15_000), CheckLevel.WARN, "fail-over", "cluster-node-timeout is 15000 ms"),
        (replace(GOOD, node_timeout_ms=500), CheckLevel.WARN, "fail-over", "cluster-node-timeout is 500 ms"),
        (replace(GOOD, full_coverage=True), CheckLevel.WARN, "fail-over", "cluster-require-full-coverage is yes"),
        (
            replace(GOOD, primaries=[ONE, replace(ONE, place="r2", maxmemory_policy="allkeys-lru")]),
            CheckLevel.FAIL,
            "eviction",
            "r2: allkeys-lru",
        ),
        (
            replace(GOOD, primaries=[ONE, replace(ONE, place="r2", missing_rights=["+asking"])]),
            CheckLevel.FAIL,
            "rights",
            "r2: user default lacks +asking",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_member(facts: ClusterFacts, level: CheckLevel, subject: str, seen: str) -> None:
    (wrong,) = (one for one in about_cluster(facts) if one.level is not CheckLevel.OK)
    assert (wrong.level, wrong.subject) == (level, subject)
    assert seen in wrong.seen
