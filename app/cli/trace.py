"""`homing profile trace`: what each profile makes of what a live broker carries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.output import Stop, err, out, tell
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.core.messages import ReceivedMessage
    from app.core.profiles.profile import DeviceProfile
    from app.mqtt.base import InboundDelivery, MqttClient
    from app.profiles.tools.tracer import Tracer
    from app.settings import Settings

SHOWN: Final = 200
"""Characters of a payload that are shown."""
PATIENCE: Final = 10.0
"""Seconds that the broker may take."""


def trace(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Profiles as TOML files. By default, those of the settings."),
    ] = None,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="Topic filters to subscribe to, in place of those of the profiles."),
    ] = None,
    messages: Annotated[int, typer.Option(min=1, help="End after this number.")] = 1000,
    lasting: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="End after this time.")] = None,
    payloads: Annotated[bool, typer.Option(help="Show the first 200 characters of each payload.")] = True,
) -> None:
    """Listen to the configured broker, and show how each profile reads each message, or why it ignores it.

    Nothing is published, stored or taken away from nodes. It prints the counts at the end, also after Ctrl-C. It uses
    the configured user name, so it hears only what that user may read.
    """
    from app.core.durations import parse_duration
    from app.profiles.tools.tracer import Tracer
    from app.runtime.telemetry import configure_logging
    from app.settings import load_settings

    settings = load_settings()
    try:
        seconds = None if lasting is None else parse_duration(lasting).total_seconds()
    except ValueError as error:
        raise Stop(f"--for: {error}", Exit.USAGE) from None
    tracer = Tracer(_profiles(files, settings))
    configure_logging("warning", settings.log.format)
    filters = _filters(topic) if topic else tracer.filters()
    asyncio.run(_listen(tracer, filters, settings, messages, seconds, payloads=payloads))
    for line in summary(tracer):
        tell(out, line)


def _profiles(files: list[Path] | None, settings: Settings) -> list[DeviceProfile]:
    from app.profiles.loader import load_profiles, read_profile

    if files:
        return [read_profile(file) for file in files]
    given = settings.profiles
    return list(load_profiles(given.dir, given.shipped_names, given.values).values())


def _filters(given: list[str]) -> list[str]:
    from app.core.errors import InvalidInputError
    from app.core.topics import validate_filter

    try:
        return [validate_filter(one) for one in given]
    except InvalidInputError as error:
        raise Stop(f"--topic: {error.reason}", Exit.USAGE) from None


async def _listen(
    tracer: Tracer, filters: list[str], settings: Settings, messages: int, seconds: float | None, *, payloads: bool
) -> None:
    import signal
    from collections import Counter
    from contextlib import suppress
    from dataclasses import replace
    from datetime import timedelta

    from app.mqtt.base import Subscription
    from app.mqtt.from_settings import mqtt_options
    from app.mqtt.paho import PahoMqttClient
    from app.runtime.system import SystemClock, new_ulid

    ended, clock = asyncio.Event(), SystemClock()

    def hear(delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        if ended.is_set():
            return
        now = clock.wall()
        for line in lines_of(tracer, delivery.message, now, payloads=payloads):
            tell(out, line)
        if tracer.heard >= messages:
            ended.set()

    options = mqtt_options(settings, f"homing-trace-{new_ulid()[-10:].lower()}")
    client = PahoMqttClient(replace(options, session_expiry=timedelta()), Counter())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await client.start([Subscription(one, needed=False) for one in filters], hear)
    try:
        await _connected(client, ended, f"{options.host}:{options.port}")
        tell(err, f"listening to {', '.join(filters)}")
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
    finally:
        await client.stop()


async def _connected(client: MqttClient, ended: asyncio.Event, place: str) -> None:
    """Return when it hears, or is told to end."""
    waiting = [asyncio.ensure_future(client.wait_connected()), asyncio.ensure_future(ended.wait())]
    done, left = await asyncio.wait(waiting, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for one in left:
        one.cancel()
    if not done:
        raise Stop(f"HOMING_MQTT_URL: no connection with {place} within {PATIENCE:.0f}s", Exit.UNREACHABLE)


def lines_of(tracer: Tracer, message: ReceivedMessage, now: float, *, payloads: bool) -> Iterator[str]:
    """A message, and below it what each profile makes of it; `now` is in seconds since the epoch."""
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(now, UTC).strftime("%H:%M:%S.%f")[:-3]
    said = f" {_text(message.payload)}" if payloads and message.payload else ""
    retained = ", retained" if message.retain else ""
    yield f"{at} {message.topic} ({len(message.payload)} bytes{retained}){said}"
    seen = tracer.hear(message, int(now * 1000))
    yield from (f"  {one.profile}: {one.sentence}" for one in seen)
    if not seen:
        yield "  no profile has this topic"


def summary(tracer: Tracer) -> Iterator[str]:
    """The counts: a line for each profile."""
    strangers = f", {tracer.strangers} of them on topics that no profile has" if tracer.strangers else ""
    yield f"{tracer.heard} messages{strangers}"
    for profile in sorted({name for name, _ in tracer.counts}):
        counted = sorted((outcome, count) for (name, outcome), count in tracer.counts.items() if name == profile)
        yield f"  {profile}: {', '.join(f'{count} {outcome}' for outcome, count in counted)}"


def _text(payload: bytes) -> str:
    from app.profiles.tools.trial import text_of

    text = text_of(payload)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
