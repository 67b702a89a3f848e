"""The diagnoses of `homing doctor` about the event log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from app.cli.diagnosis import CheckLevel, Diagnosis
from app.core.durations import format_duration
from app.core.events.generation import CUTS

if TYPE_CHECKING:
    from app.settings import EventsSettings
    from app.store.archive import ArchiveFacts
    from app.store.redis.events.facts import EventFacts

PART: Final = "events"
NEARLY_FULL: Final = 0.8
"""A database that takes more than this share of its quota is nearly full."""
SHARE_IN_REDIS: Final = 0.6
"""The memory that events take in Redis, as a share of their bytes as a quota counts them."""
MOST_CLOCK_OFF: Final = 1.0
"""Seconds."""
SLACK: Final = timedelta(minutes=5)
"""The time for which something may be kept longer than it should be before that is worth a word."""

SWEPT: Final = timedelta(hours=1)
"""Files end with the hour, and are deleted as soon as all of it is over."""


def about_no_events() -> Diagnosis:
    """On an empty HOMING_EVENTS_URL."""
    advice = "To keep what devices say: HOMING_EVENTS_URL=redis://…, or rocks:///folder for one node."
    return Diagnosis(CheckLevel.OK, PART, "kind", "what devices say unasked is not kept", advice)


def about_events_of_one(url: str) -> Diagnosis:
    """On a log that one node alone can open."""
    return Diagnosis(CheckLevel.OK, PART, "kind", f"{url}; the node that has it open tells more: GET /v1/databases", "")


def about_events(settings: EventsSettings, facts: EventFacts, now_us: int) -> Iterator[Diagnosis]:
    """On a log in Redis. `now_us` is microseconds since 1970."""
    yield _intake(facts, now_us)
    yield _room(settings, facts)
    yield _memory(settings, facts)
    yield _retention(settings, facts, now_us)
    yield _clock(facts)


def about_cold(settings: EventsSettings, facts: ArchiveFacts, now_us: int) -> Iterator[Diagnosis]:
    """On the place of HOMING_EVENTS_COLD. `now_us` is microseconds since 1970."""
    if facts.trouble:
        yield Diagnosis(
            CheckLevel.FAIL,
            PART,
            "cold place",
            facts.trouble,
            "Nodes read, write, list and delete there: correct HOMING_EVENTS_COLD, its credentials or its rights.",
        )
        return
    yield Diagnosis(CheckLevel.OK, PART, "cold place", "a file was written, read and deleted", "")
    for one in settings.kept:
        oldest = facts.oldest.get(one.name)
        if oldest is not None and now_us - oldest > (one.retention + 2 * SWEPT) / timedelta(microseconds=1):
            age = format_duration(_whole(now_us - oldest))
            yield Diagnosis(
                CheckLevel.WARN,
                PART,
                "cold sweep",
                f"{one.name} has a folder that is {age} old, and should keep {format_duration(one.retention)}",
                "A running node deletes what is over every ten minutes: see events_cold_swept and events_cold_wait.",
            )
            return
    yield Diagnosis(CheckLevel.OK, PART, "cold sweep", "nothing lies there for longer than it should", "")


def _intake(facts: EventFacts, now_us: int) -> Diagnosis:
    if facts.holder is None:
        return Diagnosis(
            CheckLevel.WARN,
            PART,
            "intake",
            "no node brings events in: what devices say stays at the broker, as far as that keeps it",
            "Start a node with this HOMING_EVENTS_URL; where one runs, see intake_begins in its log.",
        )
    last = "no event is kept yet"
    if facts.latest:
        last = f"the last event is {format_duration(_whole(max(0, now_us - facts.latest)))} old"
    return Diagnosis(CheckLevel.OK, PART, "intake", f"node {facts.holder!a} brings events in; {last}", "")


def _room(settings: EventsSettings, facts: EventFacts) -> Diagnosis:
    share = facts.size / settings.quota_bytes
    seen = f"{facts.size:,} of {settings.quota_bytes:,} bytes"
    if share >= 1 and settings.discard == "new":
        return Diagnosis(CheckLevel.FAIL, PART, "quota", f"{seen}: nothing is taken any more", FULL)
    if share >= NEARLY_FULL:
        return Diagnosis(CheckLevel.WARN, PART, "quota", seen, FULL)
    return Diagnosis(CheckLevel.OK, PART, "quota", seen, "")


FULL: Final = "Raise HOMING_EVENTS_QUOTA_BYTES, shorten retentions, or set HOMING_EVENTS_DISCARD=old."


def _memory(settings: EventsSettings, facts: EventFacts) -> Diagnosis:
    if facts.maxmemory is None:
        return Diagnosis(CheckLevel.OK, PART, "maxmemory", "the server does not tell", "")
    needed = round(settings.quota_bytes * SHARE_IN_REDIS)
    if facts.maxmemory and needed > facts.maxmemory:
        seen = f"a full quota takes about {needed:,} bytes of Redis, whose maxmemory is {facts.maxmemory:,}"
        return Diagnosis(
            CheckLevel.WARN,
            PART,
            "maxmemory",
            f"{seen}: Redis would refuse before the quota does, and commands with it where they share it",
            "Lower HOMING_EVENTS_QUOTA_BYTES, raise maxmemory, or give events a Redis of their own.",
        )
    return Diagnosis(CheckLevel.OK, PART, "maxmemory", f"a full quota takes about {needed:,} bytes of it", "")


def _retention(settings: EventsSettings, facts: EventFacts, now_us: int) -> Diagnosis:
    for one in settings.kept:
        oldest = facts.oldest.get(one.name)
        most = one.retention + 2 * one.retention / CUTS + SLACK
        if oldest is not None and now_us - oldest > most / timedelta(microseconds=1):
            age = format_duration(_whole(now_us - oldest))
            return Diagnosis(
                CheckLevel.WARN,
                PART,
                "retention",
                f"{one.name} has events that are {age} old, and should keep {format_duration(one.retention)}",
                "A running node drops what is over: see events_not_kept in the log of the nodes (debug).",
            )
    return Diagnosis(CheckLevel.OK, PART, "retention", "nothing is kept for longer than it should be", "")


def _clock(facts: EventFacts) -> Diagnosis:
    seen = f"Redis is {abs(facts.clock_off):.1f} s {'ahead' if facts.clock_off > 0 else 'behind'}"
    if abs(facts.clock_off) > MOST_CLOCK_OFF:
        return Diagnosis(
            CheckLevel.WARN,
            PART,
            "clock",
            f"{seen} of this machine",
            "Positions are instants of Redis's clock: 'from=-10m' means another time here. Let NTP set both.",
        )
    return Diagnosis(CheckLevel.OK, PART, "clock", "Redis and this machine agree on the time", "")


def _whole(microseconds: int) -> timedelta:
    return timedelta(seconds=round(microseconds / 1_000_000))
