"""An OIDC issuer of the settings: its keys, which are fetched beside everything else, and the tokens signed with them.

Import it only where an issuer is set: its libraries are an extra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.access.login.issuer_logins import IssuerLogins
from app.access.login.jwks import IssuerKeys
from app.access.login.tokens import TokenRules, Tokens
from app.core.access.code_flow import CALLBACK, IssuerClient
from app.core.clock import Clock
from app.runtime.telemetry import Counters
from app.settings import OidcSettings


class OpenIssuer(NamedTuple):
    """The parts of a node for its issuer; somebody has to `run` the fetching of keys."""

    tokens: Tokens
    keys: IssuerKeys
    logins: IssuerLogins | None
    """None where the console is no client of the issuer."""


def open_issuer(
    settings: OidcSettings, clock: Clock, random_bytes: Callable[[int], bytes], counters: Counters
) -> OpenIssuer:
    """Return the check of tokens, the keys for it, and logins there."""
    keys = IssuerKeys(settings.issuer, clock, counters)
    rules = TokenRules(settings.issuer, settings.audience, settings.groups_claim, settings.tenant_claim)
    logins = None
    if settings.client_id:
        callback = settings.console_url + CALLBACK
        client = IssuerClient(settings.issuer, settings.client_id, callback, settings.scope)
        logins = IssuerLogins(client, settings.client_secret.get_secret_value(), keys, random_bytes, counters)
    return OpenIssuer(Tokens(rules, keys, clock), keys, logins)
