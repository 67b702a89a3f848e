"""The programs that a rig starts, privately: where they are, what they are told, and whether they answer."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import app
from app.core.errors import HomingError

MOSQUITTO_SETTINGS: Final = (
    "allow_anonymous true",
    "set_tcp_nodelay true",
    "max_inflight_messages 1000",
    "max_queued_messages 100000",
    "max_queued_bytes 268435456",
    "message_size_limit 131072",
    "persistence true",
    "autosave_interval 30",
    "persistent_client_expiration 1h",
)
"""The settings of deploy/mosquitto.conf, apart from listener and folder; a test compares."""

REDIS_SETTINGS: Final = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
}

SERVICES: Final = "redis-server mosquitto"
"""Debian's packages of the services."""

CONNECT_PACKET: Final = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00"
"""MQTT 3.1.1 without a client id; any CONNACK shows a broker."""


class NotInstalledError(HomingError):
    """A program that the rig needs is not on this machine."""


def find_binary(name: str, package: str = SERVICES) -> str:
    """The path of a program, which comes with these packages of Debian; NotInstalledError without it."""
    # Debian keeps some where ordinary users do not look, and the servers of all versions of PostgreSQL side by side.
    versions = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    places = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/sbin", "/opt/homebrew/bin", *versions)
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        raise NotInstalledError(f"{name} is not installed (Debian, Ubuntu: apt install {package})")
    return path


def redis_command(binary: str, port: int, folder: Path, **options: str) -> list[str]:
    """The command of a Redis with these options besides REDIS_SETTINGS."""
    chosen = REDIS_SETTINGS | {"port": str(port), "dir": str(folder)} | options
    return [binary, *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def mosquitto_command(binary: str, port: int, folder: Path, *settings: str) -> list[str]:
    """The command of a Mosquitto whose file, in `folder`, has these lines behind MOSQUITTO_SETTINGS."""
    # Started by root, Mosquitto would change to a user that may not write to the temporary folder.
    own = (f"listener {port} 127.0.0.1", f"persistence_location {folder}/", f"user {getpass.getuser()}")
    config = folder / "mosquitto.conf"
    config.write_text("\n".join((*own, *MOSQUITTO_SETTINGS, *settings, "")), "utf-8")
    return [binary, "-c", str(config)]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This environment without the user's own settings of Homing, and with this very code to import."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("HOMING_")}
    code = str(Path(app.__file__).parent.parent)
    paths = [code, *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), **settings}


def http_get(path: str) -> bytes:
    """The request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


async def replies(port: int, request: bytes, expected: bytes) -> bool:
    """True if the server on this port answers so."""
    try:
        return (await ask(port, request)).startswith(expected)
    except (OSError, TimeoutError):
        return False


async def ask(port: int, request: bytes, until: bytes = b"") -> bytes:
    """Return what a server says first, or all that it says up to `until`."""
    async with asyncio.timeout(2.0):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            return await reader.readuntil(until) if until else await reader.read(64)
        except asyncio.IncompleteReadError as error:
            return error.partial
        finally:
            writer.close()
