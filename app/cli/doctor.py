"""`homing doctor`: are broker and store fit for what the settings ask of them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from app.cli.output import Exit, Stop, out

if TYPE_CHECKING:
    from app.cli.verdicts import Finding
    from app.mqtt.paho_probe import Needs
    from app.settings import Settings


def doctor() -> None:
    """Check the broker and the store of the current settings, and say what to change.

    Publishes test messages below homing-doctor/, and one to each command topic of a device that there is not.
    Exit code: 0 all can work, 1 something fails, 2 wrong settings.
    """
    from app.cli.verdicts import Level
    from app.settings import load_settings

    findings = list(examine(load_settings()))
    _print(findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise Stop("", Exit.FAILED)


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything; what cannot be reached is a finding, too."""
    from app.cli.verdicts import Finding, Level, about_broker, about_memory_store, about_redis
    from app.core.errors import BrokerUnavailableError, StoreUnavailableError
    from app.main import mqtt_options
    from app.mqtt.paho_probe import probe
    from app.store.redis_doctor import inspect
    from app.system import SystemClock, new_ulid

    clock, run_id = SystemClock().monotonic, new_ulid()[-10:].lower()
    if settings.store.url.startswith("memory:"):
        yield about_memory_store()
    else:
        try:
            yield from about_redis(inspect(settings.store.url, clock, run_id))
        except StoreUnavailableError as error:
            yield Finding(Level.FAIL, "store", "reachable", str(error), "Start Redis, or correct HOMING_STORE_URL.")
    try:
        seen = probe(mqtt_options(settings, "homing-doctor"), clock, run_id, _needs(settings, run_id))
        yield from about_broker(seen, settings.mqtt.version)
    except BrokerUnavailableError as error:
        yield Finding(Level.FAIL, "broker", "reachable", str(error), "Start the broker, or correct HOMING_MQTT_URL.")


def _needs(settings: Settings, run_id: str) -> Needs:
    """What the profiles ask of the broker, with a device that there is not."""
    from app.mqtt.paho_probe import Needs
    from app.profiles.loader import load_profiles

    profiles = load_profiles(settings.profiles.dir).values()
    nobody = {"device_id": f"homing-doctor-{run_id}", "method": "doctor", "id": run_id}
    return Needs(
        writes=[one.request.topic.render(**nobody) for one in profiles],
        reads=sorted({response.topic.filter() for one in profiles for response in one.responses}),
    )


def _print(findings: Sequence[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from app.cli.verdicts import Level

    colours = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
    table = Table("", "part", "what", "seen", "what to do", box=None, pad_edge=False)
    for finding in findings:
        cells = (finding.part, finding.subject, finding.seen, finding.advice)
        table.add_row(Text(finding.level.value, colours[finding.level]), *(Text(cell) for cell in cells))
    out.print(table)
