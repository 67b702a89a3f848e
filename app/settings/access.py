"""The settings of the access directory and of an OIDC issuer."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from app.core.addresses import check_access_url, split_address
from app.settings.fields import Duration, Long, OptionalFile, SettingsGroup, Short, scheme_of


class AccessSettings(SettingsGroup):
    """The access directory of people, services and their rights."""

    url: str = ""
    """The URL of the directory: `sqlite:///path` or `postgresql://…`. If set, nodes require keys."""
    budget: Short = timedelta(seconds=2)
    """The time limit of one call before the directory counts as unavailable."""
    logins: Annotated[int, Field(ge=1, le=100_000)] = 60
    """The number of login attempts per minute that a node checks from one address."""
    open: bool = False
    """True to serve everybody who can reach the port, also from other machines."""
    refresh: Short = timedelta(milliseconds=500)
    """The interval at which a node looks for changed rules. A revoked key stays valid until they have been read."""
    bootstrap_key: SecretStr = SecretStr("")
    """The API key of the first administrator. A node that finds no administrator at its start records it."""
    bootstrap_key_file: OptionalFile = None
    """A file that contains the key."""
    migrate: bool = False
    """True if a node migrates the tables in PostgreSQL at its start. SQLite tables are always migrated."""
    stale: Long = timedelta(hours=24)
    """The time that a node that cannot read the rules keeps sending by the rules that it has."""

    approver_age: Annotated[Duration, Field(ge=timedelta(), le=timedelta(days=30))] = timedelta(hours=24)
    """The time that people and their keys must be on record before they count as a second person."""
    approver_services: bool = False
    """True if services count as a second person, too."""

    @property
    def directory_url(self) -> str:
        """`url`, or that of `state_file`."""
        return self.url or f"sqlite:///{self.state_file}"

    @property
    def state_file(self) -> Path:
        """The SQLite file in the user's state folder (XDG Base Directory Specification)."""
        state = os.environ.get("XDG_STATE_HOME", "")
        return (Path(state) if state else Path.home() / ".local" / "state") / "homing" / "access.db"

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value:
            check_access_url(value)
        return value

    @model_validator(mode="after")
    def _open_or_not(self) -> Self:
        if self.open and self.url:
            raise ValueError("HOMING_ACCESS_OPEN=true and HOMING_ACCESS_URL contradict each other; one is allowed")
        if self.bootstrap_key.get_secret_value() and self.bootstrap_key_file is not None:
            raise ValueError("HOMING_ACCESS_BOOTSTRAP_KEY and HOMING_ACCESS_BOOTSTRAP_KEY_FILE say it twice")
        return self


class OidcSettings(SettingsGroup):
    """Tokens of an OpenID Connect issuer, which callers may use in place of keys."""

    issuer: str = ""
    """The URL of the issuer, exactly as in its tokens. If empty, no tokens are accepted."""
    audience: str = ""
    """The audience that tokens for Homing must have."""
    groups_claim: Annotated[str, Field(min_length=1, max_length=128)] = "groups"
    """The claim that names the groups of a token's subject."""
    tenant_claim: Annotated[str, Field(max_length=128)] = ""
    """The claim that names the tenant of a subject that has no record. If empty, tokens do not name tenants."""
    client_id: Annotated[str, Field(max_length=255)] = ""
    """The client that the console is at the issuer. If empty, nobody logs in to the console there."""
    client_secret: SecretStr = SecretStr("")
    """The secret of that client, if it has one."""
    scope: Annotated[str, Field(pattern=r"^[!#-\[\]-~]+( [!#-\[\]-~]+)*$", max_length=1_024)] = "openid"
    """The scope that the console asks the issuer for, in words of RFC 6749 with a space between them."""
    console_url: str = ""
    """The address of the console in browsers, `https://host/console/`: the issuer sends people back to it."""

    @field_validator("issuer")
    @classmethod
    def _https(cls, value: str) -> str:
        if value:
            scheme_of(value, ("https", "http"))
            parts = split_address(value)
            if parts.query or parts.fragment or parts.username is not None or not parts.hostname:
                raise ValueError("is no URL of an issuer; allowed: https://host/path")
            if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise ValueError("scheme 'http' would let others on the way sign tokens; allowed: https://")
        return value

    @field_validator("console_url")
    @classmethod
    def _of_console(cls, value: str) -> str:
        if value:
            parts = split_address(value)
            if (
                parts.scheme not in ("https", "http")
                or not parts.hostname
                or parts.query
                or parts.fragment
                or parts.username is not None
                or not parts.path.endswith("/console/")
            ):
                raise ValueError("is no URL of a console; allowed: https://host/console/")
        return value

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.issuer) != bool(self.audience):
            raise ValueError("HOMING_OIDC_ISSUER and HOMING_OIDC_AUDIENCE belong together; one of them is empty")
        if bool(self.client_id) != bool(self.console_url):
            raise ValueError("HOMING_OIDC_CLIENT_ID and HOMING_OIDC_CONSOLE_URL belong together; one of them is empty")
        if self.client_id and not self.issuer:
            raise ValueError("HOMING_OIDC_CLIENT_ID needs HOMING_OIDC_ISSUER: people log in there")
        return self
