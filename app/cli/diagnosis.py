"""The diagnoses of `homing doctor`: no I/O, so that every one can be tested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.mqtt.paho_probe import PARKED_MESSAGES, SHARED_MESSAGES, BrokerFacts
from app.store.engine import FolderFacts
from app.store.redis.doctor import RedisFacts
from app.store.redis.guards import GuardFacts

SLOW_BROKER_MS: Final = 20.0
"""Nagle's algorithm with delayed TCP ACKs costs 40 ms."""
SLOW_REDIS_MS: Final = 5.0
FULL: Final = 0.8
"""Share of maxmemory from which on it is time to act."""
LEAST_GUARDS: Final = 3
SLOW_GUARDS_MS: Final = 5000
"""The time in which a primary that is gone may count as there."""
SMALL_RECEIVE_MAXIMUM: Final = 20
LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
"""A folder may have that much in files that are about to be written anew."""


class CheckLevel(StrEnum):
    """The severity of a finding; `fail` makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report; `advice` says what to change, where something should be."""

    level: CheckLevel
    part: str
    subject: str
    seen: str
    advice: str = ""


def about_store_of_one(url: str, folder: FolderFacts | None) -> Diagnosis:
    """On `memory://`, or the folder of `rocks://`."""
    if folder is None:
        return Diagnosis(
            CheckLevel.OK,
            "store",
            "kind",
            "memory:// (one node alone, nothing survives its end)",
            "For commands that survive a restart: HOMING_STORE_URL=rocks:///folder for one node, "
            "redis://host:6379/0 for several.",
        )
    if folder.trouble:
        return Diagnosis(CheckLevel.FAIL, "store", "folder", folder.trouble, "Correct HOMING_STORE_URL or the folder.")
    state = "in use" if folder.in_use else "not in use" if folder.exists else "made at the first start"
    seen = f"{url} (one node alone; {state}), {folder.free_bytes / 2**30:.1f} GiB free"
    short = folder.free_bytes < LEAST_FREE_BYTES
    return Diagnosis(
        CheckLevel.WARN if short else CheckLevel.OK,
        "store",
        "folder",
        seen,
        "Make room: without it, commands are refused." if short else "",
    )


def about_redis(facts: RedisFacts) -> Iterator[Diagnosis]:
    """On a Redis."""
    yield _redis_rights(facts)
    yield _redis_version(facts)
    if facts.role != "master":
        yield _redis(
            CheckLevel.FAIL,
            "role",
            f"a replica of {facts.primary or 'another'}, which takes no writes",
            "Let HOMING_STORE_URL name the primary.",
        )
    if facts.guards is not None:
        yield _guards(facts.guards)
    if facts.guards is not None or facts.wanted_replicas:
        yield _replicas(facts)
    if facts.mode == "sentinel":
        advice = "Let HOMING_STORE_URL be redis+sentinel://host:26379/service, with the service that it guards."
        yield _redis(CheckLevel.FAIL, "mode", "a Sentinel", advice)
    if facts.mode == "cluster" and facts.cluster is None:
        advice = "Let HOMING_STORE_URL be redis+cluster://host:port,host:port, with some of its members."
        yield _redis(CheckLevel.FAIL, "mode", "Redis Cluster", advice)
    yield _redis_eviction(facts)
    yield _redis_memory(facts)
    yield _redis_persistence(facts)
    yield _works(facts.scripts_work, "scripts", "they work", "they are refused", "Allow EVALSHA and SCRIPT LOAD.")
    yield _works(
        facts.wake_ups_work,
        "Pub/Sub",
        "a wake-up came back",
        "no wake-up came back",
        "Allow SUBSCRIBE and PUBLISH on mqtt:node:*; without them each forward waits for the sweep.",
    )
    slow = facts.ping_ms > SLOW_REDIS_MS
    yield _redis(
        CheckLevel.WARN if slow else CheckLevel.OK,
        "latency",
        f"{facts.ping_ms:.2f} ms",
        "Each command takes two round trips: bring nodes and Redis closer together." if slow else "",
    )


def about_broker(facts: BrokerFacts, version: str, *, alone: bool) -> Iterator[Diagnosis]:
    """On an MQTT broker, asked in the MQTT version of the settings; `alone` is a node whose store no other shares."""
    if facts.protocol_refused:
        other = "3.1.1" if version == "5" else "5"
        yield _broker(CheckLevel.FAIL, "protocol", f"it does not speak MQTT {version}", f"HOMING_MQTT_VERSION={other}")
        return
    yield _broker(CheckLevel.OK, "protocol", f"MQTT {version}")
    yield _broker_version(facts)
    if facts.maximum_qos == 0:
        yield _broker(CheckLevel.FAIL, "QoS", "only QoS 0", "Homing needs QoS 1: allow it (max_qos 1 or 2).")
        return
    yield _broker(CheckLevel.OK, "QoS", f"up to {facts.maximum_qos}")
    yield _topics(facts, version)
    if not facts.publish_works:
        yield _broker(
            CheckLevel.FAIL,
            "messages",
            "our own message did not come back",
            "Let this user publish and read homing-doctor/#.",
        )
        return
    yield _round_trip(facts)
    yield _shared(facts, alone=alone)
    if version == "5":
        yield _receive_maximum(facts)
    yield _absence(facts)
    yield _queues(facts)
    yield _dropped(facts)


def _redis(level: CheckLevel, subject: str, seen: str, advice: str = "") -> Diagnosis:
    return Diagnosis(level, "store", subject, seen, advice)


def _works(works: bool, subject: str, good: str, bad: str, advice: str) -> Diagnosis:  # noqa: FBT001
    return _redis(CheckLevel.OK, subject, good) if works else _redis(CheckLevel.FAIL, subject, bad, advice)


def _redis_rights(facts: RedisFacts) -> Diagnosis:
    if not facts.missing_rights:
        return _redis(CheckLevel.OK, "rights", f"user {facts.user} has all it needs")
    lacking = " ".join(facts.missing_rights)
    return _redis(
        CheckLevel.FAIL,
        "rights",
        f"user {facts.user} lacks {lacking}",
        f"ACL SETUSER {facts.user} {lacking}; all of them are in deploy/redis/users.acl.",
    )


def _redis_version(facts: RedisFacts) -> Diagnosis:
    if _numbers(facts.version) < (6, 2):
        return _redis(CheckLevel.WARN, "version", facts.version, "Not tested: run Redis 7.0 or newer, or Valkey.")
    return _redis(CheckLevel.OK, "version", facts.version)


def _guards(guards: GuardFacts) -> Diagnosis:
    answered = guards.asked - len(guards.silent)
    seen = f"{answered} of {guards.asked} answer, {guards.known} guard the primary, quorum {guards.quorum}"
    if guards.silent:
        return _redis(
            CheckLevel.WARN, "Sentinels", f"{seen}; {'; '.join(guards.silent)}", "Start or correct the others."
        )
    if not guards.agreed:
        return _redis(CheckLevel.WARN, "Sentinels", f"{seen}; they name different primaries", "Wait, and ask again.")
    if guards.known < LEAST_GUARDS:
        return _redis(CheckLevel.WARN, "Sentinels", seen, "Run three: fewer cannot agree once one is away.")
    if guards.down_after_ms > SLOW_GUARDS_MS:
        advice = "Set down-after-milliseconds to 2000 or less: for so long, callers get 503."
        return _redis(CheckLevel.WARN, "Sentinels", f"{seen}, down after {guards.down_after_ms} ms", advice)
    return _redis(CheckLevel.OK, "Sentinels", seen)


def _replicas(facts: RedisFacts) -> Diagnosis:
    if not facts.replicas:
        return _redis(
            CheckLevel.FAIL, "replicas", "none", "Nothing can be promoted, and nobody acknowledges: start a replica."
        )
    if facts.replicas < facts.wanted_replicas:
        advice = f"HOMING_REDIS_WAIT_REPLICAS wants {facts.wanted_replicas}: until then callers get 503."
        return _redis(CheckLevel.FAIL, "replicas", str(facts.replicas), advice)
    return _redis(CheckLevel.OK, "replicas", str(facts.replicas))


def _redis_eviction(facts: RedisFacts) -> Diagnosis:
    policy = facts.maxmemory_policy
    if policy != "noeviction":
        return _redis(
            CheckLevel.FAIL,
            "eviction",
            policy,
            "It removes waiting commands silently: set maxmemory-policy noeviction.",
        )
    if facts.evicted_keys:
        return _redis(CheckLevel.WARN, "eviction", f"{policy}, but {facts.evicted_keys} keys were evicted before")
    return _redis(CheckLevel.OK, "eviction", policy)


def _redis_memory(facts: RedisFacts) -> Diagnosis:
    used = f"{facts.used_memory / 2**20:.1f} MiB"
    if not facts.maxmemory:
        return _redis(CheckLevel.OK, "memory", f"{used} used, no limit")
    seen = f"{used} of {facts.maxmemory / 2**20:.0f} MiB used"
    if facts.used_memory > FULL * facts.maxmemory:
        return _redis(CheckLevel.WARN, "memory", seen, "When it is full, new commands are refused: raise maxmemory.")
    return _redis(CheckLevel.OK, "memory", seen)


def _redis_persistence(facts: RedisFacts) -> Diagnosis:
    if facts.append_only:
        if facts.append_fsync == "no":
            return _redis(CheckLevel.WARN, "persistence", "append-only file, fsync no", "Set appendfsync everysec.")
        return _redis(CheckLevel.OK, "persistence", f"append-only file, fsync {facts.append_fsync or 'not shown'}")
    advice = "Set appendonly yes and appendfsync everysec, or a restart forgets commands."
    if facts.snapshots is None:
        return _redis(CheckLevel.WARN, "persistence", "no append-only file", advice)
    return _redis(CheckLevel.WARN, "persistence", "snapshots only" if facts.snapshots else "none", advice)


def _broker(level: CheckLevel, subject: str, seen: str, advice: str = "") -> Diagnosis:
    return Diagnosis(level, "broker", subject, seen, advice)


def _broker_version(facts: BrokerFacts) -> Diagnosis:
    if facts.version is None:
        return _broker(CheckLevel.OK, "version", "not told ($SYS/broker/version)")
    found = re.fullmatch(r"mosquitto version (\d+\.\d+\.\d+)\S*", facts.version)
    numbers = _numbers(found[1]) if found else ()
    if not numbers or numbers >= (2, 0, 13):
        return _broker(CheckLevel.OK, "version", facts.version)
    if numbers >= (2, 0, 12):
        return _broker(
            CheckLevel.WARN,
            "version",
            facts.version,
            "It replays retained messages to shared subscriptions (Homing ignores them): run 2.0.18 or newer.",
        )
    return _broker(
        CheckLevel.WARN,
        "version",
        facts.version,
        "It loses a durable client's shared subscriptions on reconnect (Homing subscribes anew each time): "
        "run 2.0.18 or newer.",
    )


def _topics(facts: BrokerFacts, version: str) -> Diagnosis:
    if facts.refused_topics:
        lacking = ", ".join(facts.refused_topics)
        return _broker(
            CheckLevel.FAIL, "rights", f"refused: {lacking}", "Grant what deploy/mosquitto/acl grants the nodes."
        )
    return _broker(CheckLevel.OK, "rights", "not told (MQTT 3.1.1)" if version != "5" else "commands may be published")


def _round_trip(facts: BrokerFacts) -> Diagnosis:
    milliseconds = facts.round_trip_ms or 0.0
    if milliseconds > SLOW_BROKER_MS:
        return _broker(
            CheckLevel.WARN,
            "round trip",
            f"{milliseconds:.1f} ms",
            "Mosquitto: set_tcp_nodelay true. Else: mind the distance.",
        )
    return _broker(CheckLevel.OK, "round trip", f"{milliseconds:.2f} ms")


def _shared(facts: BrokerFacts, *, alone: bool) -> Diagnosis:
    subject, fault = "shared subscriptions", _sharing_fault(facts)
    if fault is not None and alone:
        return _broker(CheckLevel.OK, subject, f"{fault}; a node alone uses none")
    if fault is not None:
        advice = (
            "Without them only one node can run: use a broker that has them ($share), or HOMING_STORE_URL=memory://."
        )
        return _broker(CheckLevel.FAIL, subject, fault, advice)
    one, other = facts.shared_received
    if not alone and not (one and other):
        advice = "All went to one node: choose a round-robin or random strategy in the broker."
        return _broker(CheckLevel.WARN, subject, _shared_out(facts), advice)
    return _broker(CheckLevel.OK, subject, _shared_out(facts))


def _sharing_fault(facts: BrokerFacts) -> str | None:
    if not facts.shared_available or facts.subscribe_refused:
        return "refused"
    total, seen = sum(facts.shared_received), _shared_out(facts)
    if not total:
        return f"{seen}: the broker takes $share and delivers nothing"
    if total > SHARED_MESSAGES:
        return f"{seen}: every member gets everything"
    return f"{seen}: {SHARED_MESSAGES - total} are missing" if total < SHARED_MESSAGES else None


def _shared_out(facts: BrokerFacts) -> str:
    return f"{SHARED_MESSAGES} messages went {' : '.join(map(str, facts.shared_received))}"


def _receive_maximum(facts: BrokerFacts) -> Diagnosis:
    seen = f"{facts.receive_maximum} commands may be on their way to it"
    if facts.receive_maximum <= SMALL_RECEIVE_MAXIMUM:
        return _broker(
            CheckLevel.WARN, "Receive Maximum", seen, "More wait their turn. Mosquitto: max_inflight_messages 1000."
        )
    return _broker(CheckLevel.OK, "Receive Maximum", seen)


def _absence(facts: BrokerFacts) -> Diagnosis:
    subject = "absent devices"
    if facts.listened is None:
        return _broker(CheckLevel.OK, subject, "not told (MQTT 3.1.1): commands to them wait for their deadline")
    if not facts.listened:
        return _broker(CheckLevel.OK, subject, "the broker says that nobody is subscribed")
    where = ", ".join(facts.listened)
    return _broker(
        CheckLevel.WARN,
        subject,
        f"the broker does not say that nobody is subscribed to {where}",
        "Somebody listens to everything there, or the broker never tells: commands to absent devices wait for their "
        "deadline.",
    )


def _queues(facts: BrokerFacts) -> Diagnosis:
    if facts.parked is None or facts.parked >= PARKED_MESSAGES:
        return _broker(CheckLevel.OK, "queues", f"{PARKED_MESSAGES} messages waited for an absent client")
    return _broker(
        CheckLevel.FAIL,
        "queues",
        f"only {facts.parked} of {PARKED_MESSAGES} messages waited for an absent client, the others are lost",
        "Mosquitto: max_queued_messages 100000, see deploy/mosquitto.conf.",
    )


def _dropped(facts: BrokerFacts) -> Diagnosis:
    if facts.dropped is None:
        return _broker(CheckLevel.OK, "dropped messages", "not told ($SYS/broker/publish/messages/dropped)")
    if facts.dropped and facts.parked is not None and (lost := PARKED_MESSAGES - facts.parked):
        runs, others = divmod(facts.dropped, lost)
        seen = f"{facts.dropped} since it started; each run of this doctor loses {lost} of its own in so short a queue"
        if not others:
            return _broker(CheckLevel.OK, "dropped messages", f"{seen}, and {runs} of them as many as that")
        return _broker(
            CheckLevel.WARN, "dropped messages", seen, "Mend the queues first, then restart it to begin at 0."
        )
    if facts.dropped:
        return _broker(
            CheckLevel.WARN,
            "dropped messages",
            f"{facts.dropped} since it started",
            "It acknowledged them and threw them away: raise its queue limits, then restart it to begin at 0. (Among "
            "them is what this doctor lost when it tried a queue that was too short.)",
        )
    return _broker(CheckLevel.OK, "dropped messages", "none")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
