"""`homing simulate`: a fleet of devices that answer commands, faults included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from app.cli.output import Stop, err
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.core.profiles.profile import DeviceProfile
    from app.settings import MqttSettings, Settings
    from homing_simulator.fleet import FleetStats
    from homing_simulator.options import FleetOptions

REFRESH_SECONDS: Final = 0.2


def simulate(  # noqa: PLR0913 - the options that people type
    *,
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="The profile to use: the name of a shipped one, or a TOML file.")
    ] = "homing",
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, help="The number of devices.")] = 10,
    first: Annotated[
        str, typer.Option(metavar="ID", help="The id of the first device; the others count up from it.")
    ] = "SN0001",
    delay: Annotated[str, typer.Option(metavar="RANGE", help="The time from command to answer.")] = "50ms..500ms",
    drop: Annotated[str, typer.Option(metavar="SHARE", help="The share of commands without an answer.")] = "0%",
    duplicate: Annotated[
        str, typer.Option(metavar="SHARE", help="The share of commands that are answered twice.")
    ] = "0%",
    late: Annotated[
        str, typer.Option(metavar="SHARE", help="The share of answers that come after the deadline.")
    ] = "0%",
    garbage: Annotated[str, typer.Option(metavar="SHARE", help="The share of answers that cannot be decoded.")] = "0%",
    refuse: Annotated[str, typer.Option(metavar="SHARE", help="The share of commands that the device refuses.")] = "0%",
    mqtt_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of the broker, in place of HOMING_MQTT_URL.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The random seed. The same seed gives the same delays and faults.")
    ] = None,
) -> None:
    """Run a simulated fleet against a broker until Ctrl-C. Every device is a real MQTT client.

    RANGE is like 50ms..2s or 1s, SHARE like 1% or 0.5%. The devices send answers in the form that the profile reads:
    with the values of its rules for progress, success and refusal, and with the id or value by which it recognises a
    command.
    """
    from app.runtime.telemetry import configure_logging
    from app.settings import load_settings
    from homing_simulator.options import FleetOptions, parse_range, parse_share

    settings = load_settings(**({"mqtt": {"url": mqtt_url}} if mqtt_url is not None else {}))
    speaks = _spoken(profile, settings)
    options = FleetOptions(
        profile=profile if speaks is None else speaks.name,
        speaks=speaks,
        devices=devices,
        delay=_parsed("--delay", parse_range, delay),
        drop=_parsed("--drop", parse_share, drop),
        duplicate=_parsed("--duplicate", parse_share, duplicate),
        late=_parsed("--late", parse_share, late),
        garbage=_parsed("--garbage", parse_share, garbage),
        refuse=_parsed("--refuse", parse_share, refuse),
        seed=seed,
        first_device=first,
    )
    configure_logging("warning", settings.log.format)
    asyncio.run(_run(options, with_credentials(settings.mqtt), settings.mqtt.version))


def _spoken(profile: str, settings: Settings) -> DeviceProfile | None:
    """The profile that the devices are played from; None for the families that the simulator knows more of."""
    from pathlib import Path

    from app.profiles.loader import load_profiles, read_profile
    from homing_simulator.options import FLEET_PROFILES

    if profile.endswith(".toml"):
        return read_profile(Path(profile))
    if profile in FLEET_PROFILES:
        return None
    known = load_profiles(settings.profiles.dir, shipped=["all"])
    if profile not in known:
        raise Stop(
            f"--profile: {profile!a} is unknown; allowed: {', '.join(sorted(known))}, or a file.toml", Exit.USAGE
        )
    return known[profile]


def with_credentials(mqtt: MqttSettings) -> str:
    """The broker's URL, with user name and password of the settings where it has none itself."""
    parts = urlsplit(mqtt.url)
    if not mqtt.username or parts.username:
        return mqtt.url
    user, password = quote(mqtt.username, safe=""), quote(mqtt.password.get_secret_value(), safe="")
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()


def _parsed(option: str, parse: Callable[[str], Any], text: str) -> Any:  # noqa: ANN401 - what the parser makes
    try:
        return parse(text)
    except ValueError as error:
        raise Stop(f"{option}: {error}", Exit.USAGE) from None


async def _run(options: FleetOptions, mqtt_url: str, version: Any) -> None:  # noqa: ANN401 - as the settings have it
    import signal

    from homing_simulator.fleet import FleetStats
    from homing_simulator.run import run_simulation

    stats, ready = FleetStats(), asyncio.Event()
    fleet = asyncio.create_task(run_simulation(options, mqtt_url, version=version, stats=stats, ready=ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, fleet.cancel)
    showing = asyncio.create_task(_show(stats, ready, options))
    try:
        await asyncio.wait((fleet,))
    finally:
        showing.cancel()
    if not fleet.cancelled():
        fleet.result()
    err.line(summary_of(stats))


async def _show(stats: FleetStats, ready: asyncio.Event, options: FleetOptions) -> None:
    if not err.is_terminal:
        await ready.wait()
        err.line(f"{stats.devices} {options.profile} devices are connected")
        return
    with err.console.status("connecting") as status:
        while True:
            status.update(summary_of(stats) if ready.is_set() else f"connecting {options.devices} devices")
            await asyncio.sleep(REFRESH_SECONDS)


def summary_of(stats: FleetStats) -> str:
    """The work of the fleet so far, in a line."""
    faults = {
        "refused": stats.refused,
        "dropped": stats.dropped,
        "duplicated": stats.duplicated,
        "late": stats.late,
        "garbage": stats.garbage,
        "without words for an answer": stats.silent,
        "not understood": stats.not_a_command,
        "unsent": stats.unsent,
        "overloaded": stats.overloaded,
    }
    counted = "".join(f", {count} {name}" for name, count in faults.items() if count)
    done = f"{stats.received} commands, {stats.answered} answered{counted}"
    return f"{stats.devices} devices: {done}, {stats.waiting} waiting"
