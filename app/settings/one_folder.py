"""The settings of `homing up`: all that one folder implies, where nobody has said otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlunsplit

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from app.core.addresses import MQTT_PORTS, EngineKind, engine_kind, split_address
from app.core.errors import ConfigurationError
from app.core.memory import MemoryShares
from app.core.sizes import parse_size
from app.settings import Settings, load_settings

STORE: Final = "store"
"""The folder of commands and events."""
DIRECTORY: Final = "access.db"
ADMIN_KEY: Final = Path("secrets") / "admin.key"
WEBHOOKS_KEY: Final = Path("secrets") / "webhooks.key"
BROKER_URL: Final = "mqtt://127.0.0.1:1883"
BROKER_TLS_URL: Final = "mqtts://127.0.0.1:8883"
"""The URL of the broker with TLS, for a folder with a certificate."""
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a name for all addresses, not a bind
_DEFAULT_PORT: Final = MQTT_PORTS["mqtt"]


def settings_of_folder(folder: Path, *, authenticate: bool, **overrides: Any) -> Settings:
    """The settings of a node with all of its data in an absolute path; ConfigurationError when some contradict it.

    `overrides` count first, then the environment and `.env`, then the folder. With `authenticate`, the folder has an
    access directory, unless the environment lets everybody in.
    """

    class FolderSettings(Settings):
        """The settings with one more source."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            implied = _FolderSource(settings_cls, folder, authenticate=authenticate)
            return (init_settings, env_settings, dotenv_settings, file_secret_settings, implied)

    return load_settings(FolderSettings, **overrides)


class _FolderSource(PydanticBaseSettingsSource):
    """The last source, which sees what all others have said."""

    def __init__(self, settings_cls: type[BaseSettings], folder: Path, *, authenticate: bool) -> None:
        super().__init__(settings_cls)
        self._folder = folder
        self._authenticate = authenticate

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Nothing by itself: one setting depends on another."""
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return implied(self._folder, self.current_state, authenticate=self._authenticate)


def implied(folder: Path, said: Mapping[str, Any], *, authenticate: bool) -> dict[str, Any]:
    """The settings that a folder implies beside those that were said; ConfigurationError when these contradict it."""
    _check_store(_said(said, "store", "url"))
    for group in ("store", "events"):
        _check_place(folder, f"HOMING_{group.upper()}_URL", _said(said, group, "url"))
    shares = _shares(_said(said, "up", "memory"))
    store = f"rocks://{quote(str(folder / STORE))}"
    broker = _said(said, "broker", "url") or BROKER_URL
    return {
        "store": {"url": store, "records_bytes": shares.records_bytes, "tables_bytes": shares.tables_bytes},
        "events": {"url": store},
        "broker": {
            "url": broker,
            **({"tls_url": BROKER_TLS_URL} if _said(said, "broker", "cert_file") else {}),
            "max_connections": shares.broker_connections,
            "max_sessions": shares.sessions,
            "max_subscriptions": shares.subscriptions,
            "max_waiting_bytes": shares.waiting_bytes,
            "max_retained_bytes": shares.retained_bytes,
            "max_process_bytes": shares.process_bytes,
        },
        "command": {"max_pending": shares.open_commands, "max_waiters": shares.waiters},
        "api": {"max_connections": shares.api_connections},
        "mqtt": {"url": _own_client(broker, _said(said, "mqtt", "url"))},
        "access": _access(folder, said, authenticate=authenticate),
        "webhooks": _webhooks(folder, said),
    }


def _said(said: Mapping[str, Any], group: str, name: str) -> str:
    found = said.get(group)
    return str(found.get(name) or "") if isinstance(found, Mapping) else ""


def _shares(memory: str) -> MemoryShares:
    try:
        return MemoryShares.of(parse_size(memory)) if memory else MemoryShares()
    except ValueError:
        return MemoryShares()  # the settings say what is wrong with it


def _check_store(url: str) -> None:
    try:
        shared = bool(url) and engine_kind(url).shared
    except ValueError:
        return  # the settings of the store say what is wrong with it
    if shared:
        raise ConfigurationError(
            "HOMING_STORE_URL is the store of a cluster, and homing up is one node in one folder; unset it, or run "
            "homing serve"
        )


def _check_place(folder: Path, variable: str, url: str) -> None:
    try:
        parts = split_address(url)
    except ValueError:
        return  # the settings of that part say what is wrong with it
    if parts.scheme == EngineKind.ROCKS and Path(unquote(parts.path)).resolve() == folder.resolve():
        raise ConfigurationError(
            f"{variable} names the folder of homing up itself, which has commands and events in {STORE}/ already; "
            "unset it"
        )


def _own_client(broker: str, said: str) -> str:
    """The URL by which the node reaches its own broker."""
    try:
        parts = split_address(broker)
    except ValueError:
        return said or BROKER_URL  # the settings of the broker say what is wrong with it
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    host = _EVERY_ADDRESS.get(host, host)
    own = f"mqtt://[{host}]:{port}" if ":" in host else f"mqtt://{host}:{port}"
    if said and urlunsplit(parts) != said and said not in (own, own.removesuffix(f":{_DEFAULT_PORT}")):
        raise ConfigurationError(
            f"HOMING_MQTT_URL names another broker than the one of homing up, {own}; unset it, or run homing serve"
        )
    return own


def _access(folder: Path, said: Mapping[str, Any], *, authenticate: bool) -> dict[str, Any]:
    """The directory and its first key."""
    url = _said(said, "access", "url")
    if not authenticate:
        if url:
            raise ConfigurationError("--open asks nobody for a key, and HOMING_ACCESS_URL does; one of them is allowed")
        return {}
    if _said(said, "access", "open").lower() in ("1", "true", "yes", "on", "t", "y"):
        return {}
    found: dict[str, Any] = {} if url else {"url": f"sqlite:///{quote(str(folder / DIRECTORY))}"}
    own_key = _said(said, "access", "bootstrap_key") or _said(said, "access", "bootstrap_key_file")
    if not url and not own_key and (folder / ADMIN_KEY).exists():
        found["bootstrap_key_file"] = folder / ADMIN_KEY
    return found


def _webhooks(folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    own_key = _said(said, "webhooks", "secret_key") or _said(said, "webhooks", "secret_key_file")
    return {} if own_key or not (folder / WEBHOOKS_KEY).exists() else {"secret_key_file": folder / WEBHOOKS_KEY}
