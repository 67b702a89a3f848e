"""The doctor's diagnosis of what it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.cli.broker_diagnosis import about_clock_jump, about_contested
from app.cli.diagnosis import CheckLevel, about_broker, about_redis, about_store_of_one
from app.mqtt.paho_probe import PARKED_MESSAGES, BrokerFacts
from app.store.redis.doctor import RedisFacts
from app.store.redis.guards import GuardFacts

GOOD_REDIS = RedisFacts(
    version="7.0.15",
    mode="standalone",
    role="master",
    maxmemory=0,
    used_memory=2**20,
    maxmemory_policy="noeviction",
    append_only=True,
    append_fsync="everysec",
    snapshots="",
    evicted_keys=0,
    scripts_work=True,
    wake_ups_work=True,
    ping_ms=0.1,
    replicas=1,
)
GUARDS = GuardFacts(asked=3, silent=(), quorum=2, known=3, down_after_ms=2000, agreed=True)
"""Three of them, of one mind."""


def good_broker(**changes: Any) -> BrokerFacts:
    facts = BrokerFacts(
        version="mosquitto version 2.0.18",
        dropped=0,
        shared_received=[10, 10],
        parked=PARKED_MESSAGES,
        round_trip_ms=0.2,
        listened=[],
    )
    return replace(facts, **changes)


def test_all_is_well() -> None:
    diagnoses = [
        about_store_of_one("memory://", None),
        *about_redis(GOOD_REDIS),
        *about_redis(replace(GOOD_REDIS, guards=GUARDS)),
        *about_broker(good_broker(), "5", alone=False),
    ]
    assert {diagnosis.level for diagnosis in diagnoses} == {CheckLevel.OK}


@pytest.mark.parametrize(
    ("changes", "level", "subject", "advice"),
    [
        ({"version": "5.0.7"}, CheckLevel.WARN, "version", "7.0"),
        ({"role": "slave"}, CheckLevel.FAIL, "role", "primary"),
        ({"mode": "cluster"}, CheckLevel.FAIL, "mode", "redis+cluster://"),
        ({"mode": "sentinel"}, CheckLevel.FAIL, "mode", "redis+sentinel://host:26379/service"),
        ({"guards": GUARDS, "replicas": 0}, CheckLevel.FAIL, "replicas", "start a replica"),
        ({"wanted_replicas": 2}, CheckLevel.FAIL, "replicas", "HOMING_REDIS_WAIT_REPLICAS wants 2"),
        ({"guards": replace(GUARDS, silent=("s1:26379: away",))}, CheckLevel.WARN, "Sentinels", "the others"),
        ({"guards": replace(GUARDS, agreed=False)}, CheckLevel.WARN, "Sentinels", "ask again"),
        ({"guards": replace(GUARDS, known=2)}, CheckLevel.WARN, "Sentinels", "Run three"),
        ({"guards": replace(GUARDS, down_after_ms=30_000)}, CheckLevel.WARN, "Sentinels", "2000 or less"),
        ({"maxmemory_policy": "allkeys-lru"}, CheckLevel.FAIL, "eviction", "noeviction"),
        ({"evicted_keys": 3}, CheckLevel.WARN, "eviction", ""),
        ({"maxmemory": 2**20, "used_memory": 2**20}, CheckLevel.WARN, "memory", "maxmemory"),
        ({"append_only": False}, CheckLevel.WARN, "persistence", "appendonly yes"),
        ({"append_fsync": "no"}, CheckLevel.WARN, "persistence", "everysec"),
        ({"scripts_work": False}, CheckLevel.FAIL, "scripts", "EVAL"),
        ({"wake_ups_work": False}, CheckLevel.FAIL, "Pub/Sub", "mqtt:node:"),
        ({"ping_ms": 40.0}, CheckLevel.WARN, "latency", "closer"),
        (
            {"missing_rights": ["+zadd", "~mqtt:due:*"]},
            CheckLevel.FAIL,
            "rights",
            "ACL SETUSER default +zadd ~mqtt:due:*",
        ),
    ],
)
def test_a_redis_that_is_not_as_it_should_be(
    changes: dict[str, Any], level: CheckLevel, subject: str, advice: str
) -> None:
    (diagnosis,) = [one for one in about_redis(replace(GOOD_REDIS, **changes)) if one.level is not CheckLevel.OK]
    assert (diagnosis.level, diagnosis.subject) == (level, subject)
    assert advice in diagnosis.advice


@pytest.mark.parametrize(
    ("changes", "level", "subject", "advice"),
    [
        ({"protocol_refused": True}, CheckLevel.FAIL, "protocol", "HOMING_MQTT_VERSION=3.1.1"),
        ({"maximum_qos": 0}, CheckLevel.FAIL, "QoS", "QoS 1"),
        ({"refused_topics": ["write a/b"]}, CheckLevel.FAIL, "rights", "deploy/mosquitto/acl"),
        ({"publish_works": False}, CheckLevel.FAIL, "messages", "homing-doctor/#"),
        ({"round_trip_ms": 41.0}, CheckLevel.WARN, "round trip", "set_tcp_nodelay true"),
        ({"shared_available": False}, CheckLevel.FAIL, "shared subscriptions", "$share"),
        ({"subscribe_refused": True}, CheckLevel.FAIL, "shared subscriptions", "$share"),
        ({"shared_received": [20, 20]}, CheckLevel.FAIL, "shared subscriptions", "$share"),
        ({"shared_received": [5, 5]}, CheckLevel.FAIL, "shared subscriptions", "$share"),
        ({"shared_received": [0, 0]}, CheckLevel.FAIL, "shared subscriptions", "$share"),
        ({"shared_received": [20, 0]}, CheckLevel.WARN, "shared subscriptions", "round-robin"),
        ({"receive_maximum": 20}, CheckLevel.WARN, "Receive Maximum", "max_inflight_messages"),
        ({"parked": 1000}, CheckLevel.FAIL, "queues", "max_queued_messages 100000"),
        ({"dropped": 7}, CheckLevel.WARN, "dropped messages", "queue limits"),
        ({"listened": ["homing/x/command"]}, CheckLevel.WARN, "absent devices", "Somebody listens to everything"),
    ],
)
def test_a_broker_that_is_not_as_it_should_be(
    changes: dict[str, Any], level: CheckLevel, subject: str, advice: str
) -> None:
    (diagnosis,) = [
        one for one in about_broker(good_broker(**changes), "5", alone=False) if one.level is not CheckLevel.OK
    ]
    assert (diagnosis.level, diagnosis.subject) == (level, subject)
    assert advice in diagnosis.advice


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"subscribe_refused": True}, "refused; a node alone uses none"),
        (
            {"shared_received": [0, 0]},
            "20 messages went 0 : 0: the broker takes $share and delivers nothing; a node alone uses none",
        ),
        ({"shared_received": [20, 0]}, "20 messages went 20 : 0"),
    ],
)
def test_a_node_alone_needs_no_shared_subscriptions(changes: dict[str, Any], seen: str) -> None:
    diagnoses = list(about_broker(good_broker(**changes), "3.1.1", alone=True))
    assert {diagnosis.level for diagnosis in diagnoses} == {CheckLevel.OK}
    assert seen in [diagnosis.seen for diagnosis in diagnoses]


@pytest.mark.parametrize(
    ("dropped", "level", "said"),
    [
        (500, CheckLevel.OK, "and 1 of them as many"),
        (1500, CheckLevel.OK, "and 3 of them as many"),
        (501, CheckLevel.WARN, "each run of this doctor loses 500"),
    ],
)
def test_the_doctor_does_not_blame_the_broker_for_its_own_probe(dropped: int, level: CheckLevel, said: str) -> None:
    facts = good_broker(parked=PARKED_MESSAGES - 500, dropped=dropped)
    (diagnosis,) = [one for one in about_broker(facts, "5", alone=False) if one.subject == "dropped messages"]
    assert diagnosis.level is level
    assert said in diagnosis.seen


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("mosquitto version 2.0.11", "loses a durable client's shared subscriptions"),
        ("mosquitto version 1.6.9", "loses a durable client's shared subscriptions"),
        ("mosquitto version 2.0.12", "replays retained messages"),
        ("mosquitto version 2.0.13", ""),
        ("mosquitto version 2.1.0-test", ""),
        ("5.8.0", ""),
        (None, ""),
    ],
)
def test_known_bad_versions_of_mosquitto(version: str | None, said: str) -> None:
    (diagnosis,) = [
        one for one in about_broker(good_broker(version=version), "5", alone=False) if one.subject == "version"
    ]
    assert diagnosis.level is (CheckLevel.WARN if said else CheckLevel.OK)
    assert said in diagnosis.advice


def test_what_a_broker_does_not_tell_is_no_fault() -> None:
    diagnoses = about_broker(good_broker(version=None, dropped=None, parked=None), "3.1.1", alone=False)
    assert {diagnosis.level for diagnosis in diagnoses} == {CheckLevel.OK}


def test_clients_that_share_a_client_id_are_named() -> None:
    (found,) = about_contested("'dock-1', 'dock-2'")
    assert found.level is CheckLevel.WARN
    assert "'dock-1', 'dock-2'" in found.seen
    assert not list(about_contested(""))


@pytest.mark.parametrize(("seconds", "said"), [(7_200, "forward by 2.0 h"), (-5_400, "back by 1.5 h")])
def test_a_clock_that_has_jumped_is_named(seconds: int, said: str) -> None:
    (found,) = about_clock_jump(seconds)
    assert found.level is CheckLevel.WARN
    assert said in found.seen
    assert not list(about_clock_jump(0))
