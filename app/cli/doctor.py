"""`homing doctor`: who may call, and are broker and store fit for what the settings ask of them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Stop, out, tell, written
from app.core.clock import wall_us
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.cli.access_diagnosis import AccessFacts
    from app.cli.diagnosis import Diagnosis
    from app.core.access.model import Document
    from app.mqtt.paho_probe import Needs
    from app.settings import EventsSettings, Settings


_Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Check this folder of homing up, or this backup, and nothing else."),
]


def doctor(
    *, data: _Data = None, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
) -> None:
    """Check the configured broker, store and access directory, and suggest what to change.

    It publishes test messages below homing-doctor/, and one to the command topics of a device that does not exist. With
    --data it asks nobody, and looks at files alone. Exit code: 0 all can work, perhaps with warnings, 1 something
    fails, 2 wrong settings.
    """
    from app.cli.diagnosis import CheckLevel
    from app.settings import load_settings

    if data is not None:
        from app.cli.folder_diagnosis import about_data_folder

        diagnoses = list(about_data_folder(data))
    else:
        diagnoses = list(examine(load_settings()))
    (_print_json if as_json else _print)(diagnoses)
    if any(diagnosis.level is CheckLevel.FAIL for diagnosis in diagnoses):
        raise Stop("", Exit.FAILED)


def examine(settings: Settings) -> Iterator[Diagnosis]:
    """Look at everything; what cannot be reached is a diagnosis, too."""
    from app.cli.access_diagnosis import about_access
    from app.cli.broker_diagnosis import about_clock_jump, about_contested
    from app.cli.cluster_diagnosis import about_cluster
    from app.cli.diagnosis import CheckLevel, Diagnosis, about_broker, about_redis
    from app.core.errors import BrokerUnavailableError, StoreUnavailableError
    from app.mqtt.from_settings import mqtt_options
    from app.mqtt.paho_probe import probe
    from app.runtime.system import SystemClock, new_ulid
    from app.store.engine import inspect_server, kind_of

    clock, run_id = SystemClock().monotonic, new_ulid()[-10:].lower()
    yield from about_access(settings, look_at_access(settings), wall_us(SystemClock()))
    try:
        terms = replace(settings.redis.terms(), keeps_sessions=settings.broker.listens)
        facts = inspect_server(settings.store.url, clock, run_id, terms)
        if facts is None:
            yield _look_at_store_of_one(settings)
        else:
            yield from about_redis(facts) if facts.cluster is None else about_cluster(facts.cluster)
    except StoreUnavailableError as error:
        yield Diagnosis(CheckLevel.FAIL, "store", "reachable", str(error), "Start Redis, or correct HOMING_STORE_URL.")
    yield from _look_at_events(settings)
    yield from _look_at_profiles(settings)
    yield from _look_at_own_broker(settings)
    try:
        seen = probe(mqtt_options(settings, "homing-doctor"), clock, run_id, _needs(settings, run_id))
        yield from about_broker(seen, settings.mqtt.version, alone=not kind_of(settings.store.url).shared)
        yield from about_contested(seen.contested)
        yield from about_clock_jump(seen.clock_jump)
    except BrokerUnavailableError as error:
        yield Diagnosis(
            CheckLevel.FAIL, "broker", "reachable", str(error), "Start the broker, or correct HOMING_MQTT_URL."
        )


def _look_at_store_of_one(settings: Settings) -> Diagnosis:
    from app.cli.diagnosis import about_store_of_one
    from app.store.engine import inspect_folder

    return about_store_of_one(settings.store.url, inspect_folder(settings.store.url))


def _look_at_own_broker(settings: Settings) -> Iterator[Diagnosis]:
    """The broker of a node with these settings, which need not run."""
    from app.broker.certificate import ServerCertificate
    from app.cli.broker_diagnosis import about_own_broker
    from app.core.errors import ConfigurationError
    from app.runtime.system import SystemClock

    cert_file, key_file = settings.broker.cert_file, settings.broker.key_file
    days_left, trouble = None, ""
    if cert_file is not None and key_file is not None:
        try:
            days_left = ServerCertificate(cert_file, key_file, SystemClock(), settings.broker.client_ca_file).days_left
        except ConfigurationError as error:
            trouble = str(error)
    return about_own_broker(settings, days_left, trouble)


def _look_at_profiles(settings: Settings) -> Iterator[Diagnosis]:
    """Files that nodes go on without, and what others say in vain."""
    from app.cli.diagnosis import CheckLevel, Diagnosis
    from app.profiles.loader import hints_in, load_what_can_be

    given = settings.profiles
    _, refused = load_what_can_be(given.dir, given.shipped_names, given.values)
    for one in refused:
        advice = f"Mend it and restart the nodes, which do not speak {one.name} meanwhile."
        yield Diagnosis(CheckLevel.FAIL, "profiles", one.file.name, "; ".join(one.faults.splitlines()), advice)
    wrong = {one.file for one in refused}
    for file in sorted(given.dir.glob("*.toml")) if given.dir is not None else ():
        for hint in () if file in wrong else hints_in(file):
            yield Diagnosis(
                CheckLevel.WARN, "profiles", file.name, hint, "Nodes speak it; this part of it never counts."
            )


def _look_at_events(settings: Settings) -> Iterator[Diagnosis]:
    from app.cli.diagnosis import CheckLevel, Diagnosis
    from app.cli.event_diagnosis import about_events, about_events_of_one, about_no_events
    from app.core.addresses import events_kind
    from app.core.errors import StoreUnavailableError
    from app.core.events.event import Database
    from app.runtime.system import SystemClock
    from app.store.engine import inspect_event_log

    events, wall = settings.events, SystemClock().wall
    if not events.url:
        yield about_no_events()
    elif not events_kind(events.url).shared:
        yield about_events_of_one(events.url)
    else:
        try:
            databases = [Database(one.name, events.shards, ()) for one in events.kept]
            facts = inspect_event_log(events.url, databases, settings.mqtt.share_group, wall, settings.redis.terms())
        except StoreUnavailableError as error:
            advice = "Start that Redis, or correct HOMING_EVENTS_URL."
            yield Diagnosis(CheckLevel.FAIL, "events", "reachable", str(error), advice)
        else:
            yield from about_events(events, facts, round(wall() * 1_000_000))
    if events.cold:
        yield from _look_at_cold(events)


def _look_at_cold(events: EventsSettings) -> Iterator[Diagnosis]:
    from app.cli.event_diagnosis import about_cold
    from app.runtime.system import SystemClock, new_secret
    from app.store.engine import inspect_cold_place

    clock = SystemClock()
    facts = inspect_cold_place(events.cold, [one.name for one in events.kept], clock, new_secret)
    yield from about_cold(events, facts, wall_us(clock))


def look_at_access(settings: Settings) -> AccessFacts:
    """Read the directory of the settings, if there is one; nothing is made or changed."""
    import asyncio
    from pathlib import Path

    from app.cli.access_diagnosis import AccessFacts
    from app.core.addresses import split_address, sqlite_file
    from app.core.errors import DirectoryError, InvalidInputError, SchemaTooOldError, UnavailableError
    from app.runtime.system import new_secret
    from app.store.engine import open_directory

    url = settings.access.url
    if not url:
        return AccessFacts()
    if url.startswith("sqlite:") and not Path(sqlite_file(split_address(url))).exists():
        return AccessFacts(trouble="there is no such file yet", no_tables=True)

    async def read() -> Document:
        directory = open_directory(url, new_cluster_id=new_secret, budget=settings.access.budget)
        try:
            await directory.start()
            return await directory.read()
        finally:
            await directory.close()

    try:
        return AccessFacts(asyncio.run(read()))
    except SchemaTooOldError as error:
        return AccessFacts(trouble=str(error), no_tables=True)
    except (DirectoryError, InvalidInputError, UnavailableError) as error:
        return AccessFacts(trouble=str(error))


def _needs(settings: Settings, run_id: str) -> Needs:
    """Return what the profiles ask of the broker, with a device that there is not."""
    from app.core.cluster.notices import NOTICES
    from app.core.topics import canary_topics
    from app.mqtt.paho_probe import Needs
    from app.profiles.loader import load_what_can_be
    from app.replies.handlers import handlers_named

    given = settings.profiles
    profiles = load_what_can_be(given.dir, given.shipped_names, given.values)[0].values()
    handlers_named(settings.reply, profiles)  # a node would not start without them
    reads = sorted({topic.filter() for one in profiles for topic in one.heard})
    notices = f"{NOTICES}/doctor-{run_id}"
    absent = [topic for one in profiles for topic, _ in one.topics_of_nobody(f"homing-doctor-{run_id}")]
    replies = [
        reply.to.filled(dict.fromkeys(reply.to.names, f"homing-doctor-{run_id}"))
        for one in profiles
        for reply in one.replies
    ]
    return Needs(
        writes=[*absent, *dict.fromkeys(replies), *canary_topics(reads), notices],
        absent=absent,
        reads=[*reads, notices],
    )


def _print_json(diagnoses: Sequence[Diagnosis]) -> None:
    """The worst level of all, then each as it is: a format, so that members are only ever added."""
    from app.cli.diagnosis import CheckLevel

    found = {one.level for one in diagnoses}
    worst = next((level for level in (CheckLevel.FAIL, CheckLevel.WARN) if level in found), CheckLevel.OK)
    out.line(written({"level": worst, "diagnoses": [asdict(one) for one in diagnoses]}))


def _print(diagnoses: Sequence[Diagnosis]) -> None:
    if not out.is_terminal:
        parts = max(len(one.part) for one in diagnoses)
        subjects = max(len(one.subject) for one in diagnoses)
        for one in diagnoses:  # whole lines: whoever reads a pipe has no width
            tell(out, f"{one.level:<4}  {one.part:<{parts}}  {one.subject:<{subjects}}  {one.seen}")
            if one.advice:
                tell(out, f"      {one.advice}")
        return
    from rich.table import Table
    from rich.text import Text

    from app.cli.diagnosis import CheckLevel

    colours = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}
    table = Table("", "part", "what", "seen", "what to do", box=None, pad_edge=False)
    for diagnosis in diagnoses:
        cells = (diagnosis.part, diagnosis.subject, diagnosis.seen, diagnosis.advice)
        table.add_row(Text(diagnosis.level.value, colours[diagnosis.level]), *(Text(cell) for cell in cells))
    out.console.print(table, soft_wrap=False)
