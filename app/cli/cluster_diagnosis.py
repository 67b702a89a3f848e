"""The diagnoses of `homing doctor` on a Redis Cluster: on each primary, and on all of them together. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from app.cli.diagnosis import CheckLevel, Diagnosis, about_redis
from app.store.redis.doctor import ClusterFacts

MOST_SKEW: Final = 0.25
"""Seconds. What is more than this is no longer within the grace of a sweep."""
UNFIT_SKEW: Final = 2.0
MOST_SHARE: Final = 1.3
"""The partitions of the fullest primary, over those of the mean. Three equal ones have 1.1."""
NODE_TIMEOUT_MS: Final = (1_000, 5_000)
"""A busy server is silent for less than the first, and callers wait in vain for longer than the second."""


def about_cluster(facts: ClusterFacts) -> Iterator[Diagnosis]:
    """On a Redis Cluster."""
    yield _state(facts)
    yield _replicas(facts)
    yield _clocks(facts)
    if facts.partitions:
        yield _partitions(facts.partitions)
    yield from _fail_over(facts)
    if not facts.bus_works:
        yield _store(
            CheckLevel.FAIL,
            "cluster bus",
            "what one member publishes does not come to another",
            "Let the members reach each other's bus port; without it each forward waits for the sweep.",
        )
    yield from _each(facts)


def _store(level: CheckLevel, subject: str, seen: str, advice: str = "") -> Diagnosis:
    return Diagnosis(level, "store", subject, seen, advice)


def _state(facts: ClusterFacts) -> Diagnosis:
    seen = f"{len(facts.primaries)} primaries serve all slots"
    failing = [one.place for one, state in zip(facts.primaries, facts.states, strict=False) if state != "ok"]
    if failing:
        advice = "Start the members that are away, or let CLUSTER NODES tell which are."
        return _store(CheckLevel.FAIL, "Redis Cluster", f"{', '.join(failing)}: cluster_state is not ok", advice)
    return _store(CheckLevel.OK, "Redis Cluster", seen)


def _replicas(facts: ClusterFacts) -> Diagnosis:
    without = [one.place for one in facts.primaries if not one.replicas]
    if without:
        advice = "Nothing can be promoted there: add a replica (CLUSTER REPLICATE)."
        return _store(CheckLevel.WARN, "replicas", f"none of {', '.join(without)}", advice)
    short = [one.place for one in facts.primaries if one.replicas < one.wanted_replicas]
    if short:
        advice = "HOMING_REDIS_WAIT_REPLICAS wants more: until then callers get 503."
        return _store(CheckLevel.FAIL, "replicas", f"too few of {', '.join(short)}", advice)
    return _store(CheckLevel.OK, "replicas", " : ".join(str(one.replicas) for one in facts.primaries))


def _clocks(facts: ClusterFacts) -> Diagnosis:
    clocks = [one.clock for one in facts.primaries]
    skew = max(clocks) - min(clocks)
    if skew <= MOST_SKEW:
        return _store(CheckLevel.OK, "clocks", f"{skew:.2f} s apart")
    level = CheckLevel.FAIL if skew > UNFIT_SKEW else CheckLevel.WARN
    return _store(level, "clocks", f"{skew:.2f} s apart", "Set them by NTP: lists and sweeps go by them.")


def _partitions(shares: Sequence[int]) -> Diagnosis:
    seen = " : ".join(map(str, shares))
    if max(shares) * len(shares) > MOST_SHARE * sum(shares):
        advice = "The fullest primary is the bound of all: move slots to the others (redis-cli --cluster rebalance)."
        return _store(CheckLevel.WARN, "partitions", seen, advice)
    return _store(CheckLevel.OK, "partitions", seen)


def _fail_over(facts: ClusterFacts) -> Iterator[Diagnosis]:
    shortest, longest = NODE_TIMEOUT_MS
    if facts.full_coverage:
        advice = "Let it be no: with yes, all primaries refuse all calls while one is away."
        yield _store(CheckLevel.WARN, "fail-over", "cluster-require-full-coverage is yes", advice)
    if facts.node_timeout_ms is None:
        return
    seen = f"cluster-node-timeout is {facts.node_timeout_ms} ms"
    if facts.node_timeout_ms < shortest:
        yield _store(CheckLevel.WARN, "fail-over", seen, "Let it be 1500: a server that is busy counts as dead.")
    elif facts.node_timeout_ms > longest:
        advice = "Let it be 1500: for so long, and some seconds more, callers get 503 for what a dead primary served."
        yield _store(CheckLevel.WARN, "fail-over", seen, advice)
    elif not facts.full_coverage:
        yield _store(CheckLevel.OK, "fail-over", seen)


def _each(facts: ClusterFacts) -> Iterator[Diagnosis]:
    """Say what is wrong with each primary, and what is right with all of them once."""
    found = [(one.place, said) for one in facts.primaries for said in _alone(facts, one.place)]
    wrong = Counter(said.subject for _, said in found if said.level is not CheckLevel.OK)
    told: set[str] = set()
    for place, said in found:
        if said.level is not CheckLevel.OK:
            yield replace(said, seen=f"{place}: {said.seen}")
        elif said.subject not in wrong and said.subject not in told:
            told.add(said.subject)
            yield said


def _alone(facts: ClusterFacts, place: str) -> Iterator[Diagnosis]:
    one = next(one for one in facts.primaries if one.place == place)
    return about_redis(replace(one, mode="standalone", wanted_replicas=0))
