"""`homing up`: a node, its broker, its store and its access directory from one folder."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.output import Stop, err, out, plain, tell
from app.cli.serve import serve_node
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.settings import Settings
    from app.store.data_folder import DataFolder

FOLDER: Final = Path("homing-data")
WAIT_SECONDS: Final = 0.2
TOLD_SECONDS: Final = 60.0
"""The seconds between two notes of a start that waits."""

_Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="HOMING_DATA",
        help="The folder for everything that the node keeps. It is made if missing.",
    ),
]
_Mqtt = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The address of the MQTT broker. By default, 127.0.0.1:1883."),
]
_Api = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The address of the API. By default, 127.0.0.1:8080.")
]
_Mqtts = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The address of the MQTT broker with TLS. By default, 127.0.0.1:8883."),
]
_TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="The certificate of the broker in the PEM format, for TLS."),
]
_TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate in the PEM format.")
]
_TlsClientCa = Annotated[
    Path | None,
    typer.Option("--tls-client-ca", metavar="FILE", help="The authorities of devices' certificates in the PEM format."),
]
_Profile = Annotated[
    str | None, typer.Option(help="The device profile of commands that name none. By default, homing.")
]
_Open = Annotated[bool, typer.Option("--open", help="Require no key. Only this machine can connect then.")]


def up(
    *,
    data: _Data = FOLDER,
    mqtt: _Mqtt = None,
    mqtts: _Mqtts = None,
    tls_cert: _TlsCert = None,
    tls_key: _TlsKey = None,
    tls_client_ca: _TlsClientCa = None,
    api: _Api = None,
    profile: _Profile = None,
    open_: _Open = False,
) -> None:
    """Run everything in one process: a node, an MQTT broker, the store, and the directory of who may do what.

    The first start creates the folder and an administrator's key, and prints the key once. Settings in the environment
    and in .env override those that the folder implies. SIGTERM and SIGINT stop it in an orderly way.
    Exit code: 0 stopped, 1 failed, 2 wrong settings, or the folder cannot be used.
    """
    from app.runtime.structured_logs import load_structlog

    load_structlog()
    from app.runtime.service_manager import ServiceManager
    from app.runtime.sockets import listen
    from app.runtime.system import SystemClock
    from app.runtime.telemetry import configure_logging
    from app.server.sockets import listen_for_operations, refuse_strangers, url_of
    from app.settings.one_folder import settings_of_folder
    from app.store.data_folder import DataFolder

    overrides = _overrides(api, profile)
    if broker := _broker(mqtt, mqtts, tls_cert, tls_key, tls_client_ca):
        overrides["broker"] = broker
    path = data.absolute()
    settings_of_folder(path, authenticate=not open_, **overrides)  # what is wrong with them is said before all else
    folder = DataFolder(path, PatientStart(SystemClock().monotonic, time.sleep).wait)
    try:
        is_first = _keep_secrets(folder, authenticate=not open_)
        settings = settings_of_folder(path, authenticate=not open_, **overrides)
        configure_logging(settings.log.level, settings.log.format)
        listener = listen(settings.api.host, settings.api.port)
        refuse_strangers(settings, listener)
        operations = listen_for_operations(settings)
        if is_first:
            _tell_key(folder, settings)
        said = "\n".join(map(plain, next_steps(settings, url_of(listener), path)))
        manager = ServiceManager(os.environ, os.getpid())

        def tell_ready() -> None:
            out.line(said)
            manager.begin()

        serve_node(settings, listener, operations=operations, when_ready=tell_ready)
    finally:
        folder.release()


class PatientStart:
    """Waits for a backup of the folder, and says so every minute: an exit would be for good, as systemd has it.

    There is no bound, as a backup takes its time, but whoever looks is told whom to end if that one does nothing more.
    """

    def __init__(self, monotonic: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._since = self._next = monotonic()

    def wait(self, sentence: str) -> None:
        """Return after a moment."""
        now = self._monotonic()
        if now >= self._next:
            self._next = now + TOLD_SECONDS
            waited = round((now - self._since) / 60)
            so_far = f", for {waited} min so far; ending that process ends the backup, and lets this one start"
            tell(err, f"{sentence}: this start waits until the copy is there{so_far if waited else ''}")
        self._sleep(WAIT_SECONDS)


def _broker(
    mqtt: str | None, mqtts: str | None, cert: Path | None, key: Path | None, client_ca: Path | None
) -> dict[str, Any]:
    """The settings of the broker that options name; Stop when they do not fit together."""
    if (cert is None) is not (key is None):
        raise Stop("--tls-cert and --tls-key belong together: one of them is missing", Exit.USAGE)
    found: dict[str, Any] = {}
    if cert is not None and key is not None:
        found = {"cert_file": cert.absolute(), "key_file": key.absolute()}
    if client_ca is not None:
        found["client_ca_file"] = client_ca.absolute()
    if mqtt is not None:
        found["url"] = _broker_url("mqtt", mqtt)
    if mqtts is not None:
        found["tls_url"] = _broker_url("mqtts", mqtts)
    return found


def _broker_url(scheme: str, text: str) -> str:
    from app.core.addresses import MQTT_PORTS

    host, port = _address(f"--{scheme}", text, MQTT_PORTS[scheme])
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _overrides(api: str | None, profile: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if profile is None else {"profile": profile}
    if api is not None:
        host, port = _address("--api", api, 8080)
        found["api"] = {"host": host, "port": port}
    return found


def _address(option: str, text: str, port: int) -> tuple[str, int]:
    """Host and port; Stop when the text has no such form. A port alone would be the name of a host."""
    from app.core.addresses import split_address

    try:
        parts = split_address(f"//{text}")
        found = parts.port
    except ValueError:
        parts, found = None, None
    if parts is None or not parts.hostname or parts.netloc != text or "@" in text or parts.hostname.isdecimal():
        raise Stop(f"{option}: {text[:64]!a} is no address; allowed: HOST:PORT, such as 127.0.0.1:{port}", Exit.USAGE)
    return parts.hostname, port if found is None else found


def _keep_secrets(folder: DataFolder, *, authenticate: bool) -> bool:
    """Make the keys that the folder has from its beginning; True if no start has come as far as to need them."""
    from app.core.access.keys import make_key
    from app.runtime.system import new_secret, random_bytes
    from app.settings.one_folder import ADMIN_KEY, DIRECTORY, WEBHOOKS_KEY

    folder.keep(WEBHOOKS_KEY, new_secret())
    if not authenticate or (folder.path / DIRECTORY).exists():
        return False  # somebody administers it already, or nobody has to
    folder.keep(ADMIN_KEY, make_key(random_bytes).text)
    return True


def _tell_key(folder: DataFolder, settings: Settings) -> None:
    from app.access.plane import bootstrap_key
    from app.settings.one_folder import ADMIN_KEY

    if settings.access.bootstrap_key_file != folder.path / ADMIN_KEY:
        return
    if (key := bootstrap_key(settings.access)) is not None:
        tell(err, f"The key of the administrator, shown once and kept in {folder.path / ADMIN_KEY}:")
        tell(out, key.text)


def next_steps(settings: Settings, url: str, folder: Path) -> list[str]:
    """The lines that say how to go on."""
    from app.core.access.admins import ADMIN
    from app.core.addresses import split_address
    from app.settings.one_folder import ADMIN_KEY

    broker, brokers = split_address(settings.mqtt.url), (settings.mqtt.url, settings.broker.tls_url)
    where = f"-h {broker.hostname} -p {broker.port or 1883}"
    key = login = ""
    if settings.access.bootstrap_key_file:
        key = f" HOMING_KEY=$(cat {shlex.quote(str(folder / ADMIN_KEY))})"
        login = f' -u {ADMIN} -P "$HOMING_KEY"'
    return [
        f"Homing is up: {', '.join(filter(None, brokers))} and {url}, data in {folder}",
        f"Console   {url}/console/",
        f"Shell     export HOMING_URL={url}{key}",
        "Command   homing send DEVICE METHOD",
        f"Message   mosquitto_pub {where}{login} -t homing/DEVICE/event -m '{{\"n\": 1}}'",
        "Ctrl-C ends it.",
    ]
