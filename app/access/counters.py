"""The counters of logins, and of tokens of an OIDC issuer."""

from __future__ import annotations

from typing import Final

from app.core.access.callers import TokenFault
from app.core.access.code_flow import LoginFault
from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (
            counted("homing_logins", "Attempts to log in with a password, and logouts", "result"),
            {f"login.{result}": result for result in ("accepted", "refused", "limited", "ended")},
        ),
        (
            counted("homing_tokens_refused", "Tokens that count for nothing, by why", "reason"),
            {f"token.{fault}": fault for fault in TokenFault},
        ),
        (
            counted("homing_oidc_logins", "Logins to the console at an OIDC issuer", "result"),
            {
                "login.issuer_accepted": "accepted",
                **{f"login.issuer_{fault}": fault for fault in LoginFault},
            },
        ),
        (
            counted("homing_oidc_fetches", "Fetches of an OIDC issuer's keys", "result"),
            {"oidc.fetched": "good", "oidc.failed": "failed"},
        ),
    ),
)
