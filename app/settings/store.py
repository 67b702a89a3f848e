"""The settings of the store, and of a Redis beside its URL, for the store and the event log alike."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from app.core.addresses import check_store_url
from app.core.errors import ConfigurationError
from app.core.memory import RECORDS_BYTES, TABLES_BYTES
from app.core.redis_address import RedisTerms
from app.settings.fields import Long, OptionalFile, SettingsGroup, Short


class StoreSettings(SettingsGroup):
    """The store of commands and callbacks."""

    url: str = "memory://"
    """The URL of the store: `redis://…` or `rediss://…` for a cluster, `redis+sentinel://…` or `rediss+sentinel://…` if
    Sentinels guard its primary, `redis+cluster://…` or `rediss+cluster://…` for a Redis Cluster; for a single node
    `rocks:///folder`, or `memory://`, which forgets everything when the node stops."""
    budget: Short = timedelta(seconds=2)
    """The time limit of one call, retries included, before the caller is told that the store is unavailable."""
    retention: Long = timedelta(hours=1)
    """The time for which a command stays readable, and its idempotency key valid, after the outcome."""

    records_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = RECORDS_BYTES
    """The memory that commands take, those of the retention included, if the URL names a folder or is `memory://`."""
    tables_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = TABLES_BYTES
    """The memory that RocksDB takes for tables and blocks, if the URL names a folder, or that of the event log does."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        check_store_url(value)
        return value


class RedisSettings(SettingsGroup):
    """The Redis of the store and of the event log."""

    wait_replicas: Annotated[int, Field(ge=0, le=5)] = 0
    """The number of replicas that have to acknowledge a write before its caller is answered. 0 waits for none."""
    sentinel_user: str = ""
    """The user by which nodes log in at Sentinels. If empty, the default user."""
    sentinel_password_file: OptionalFile = None
    """A file that contains the password for Sentinels. If empty, nodes do not log in there."""

    @model_validator(mode="after")
    def _user_with_password(self) -> Self:
        if self.sentinel_user and self.sentinel_password_file is None:
            raise ValueError("HOMING_REDIS_SENTINEL_USER needs HOMING_REDIS_SENTINEL_PASSWORD_FILE: no user has none")
        return self

    def terms(self) -> RedisTerms:
        """Return what the driver is to know; ConfigurationError when the file cannot be read."""
        return RedisTerms(self.sentinel_user, self._password(), self.wait_replicas)

    def _password(self) -> str:
        if self.sentinel_password_file is None:
            return ""
        try:
            found = self.sentinel_password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"HOMING_REDIS_SENTINEL_PASSWORD_FILE cannot be read: {why}") from None
        if not found:
            raise ConfigurationError("HOMING_REDIS_SENTINEL_PASSWORD_FILE is empty; needed is the password")
        return found
