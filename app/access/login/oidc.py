"""An OIDC issuer of the settings: its keys, which are fetched beside everything else, and the tokens signed with them.

Import it only where an issuer is set: its libraries are an extra.
"""

from __future__ import annotations

from app.access.login.jwks import IssuerKeys
from app.access.login.tokens import TokenRules, Tokens
from app.core.clock import Clock
from app.runtime.telemetry import Counters
from app.settings import OidcSettings


def open_issuer(settings: OidcSettings, clock: Clock, counters: Counters) -> tuple[Tokens, IssuerKeys]:
    """The check of tokens, and the keys of which somebody has to `run` the fetching."""
    keys = IssuerKeys(settings.issuer, clock, counters)
    rules = TokenRules(settings.issuer, settings.audience, settings.groups_claim, settings.tenant_claim)
    return Tokens(rules, keys, clock), keys
