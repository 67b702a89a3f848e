"""Verify that a webhook comes from Homing: Standard Webhooks (https://www.standardwebhooks.com), HMAC-SHA256."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from homing_client import _system
from homing_client._errors import HomingError

PREFIX: Final = "whsec_"
TOLERANCE: Final = timedelta(minutes=5)
"""The most by which the time of a webhook may differ from that of this machine, as Standard Webhooks recommends."""


class WebhookError(HomingError):
    """The request does not come from whoever has the secret, or it is an old one that is played again."""


def verify(
    headers: Mapping[str, str],
    body: bytes | str,
    secrets: str | Iterable[str],
    *,
    tolerance: timedelta = TOLERANCE,
    now: float | None = None,
) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON of a webhook that one of these secrets has signed; WebhookError.

    `body` has to be the bytes as they came in: what was read and written again may differ. While a secret is rotated,
    give the old and the new one. A webhook may come twice: `webhook-id` is the same then. `now`: Unix seconds.
    """
    names = {name.lower(): value for name, value in headers.items()}
    try:
        identity, stamp, signatures = (names[f"webhook-{part}"] for part in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise WebhookError(f"the header {error.args[0]} is missing") from None
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12):  # noqa: PLR2004 - the year 5138
        raise WebhookError("webhook-timestamp is no number of seconds")
    apart = abs((_system.wall() if now is None else now) - int(stamp))
    if apart > tolerance.total_seconds():
        raise WebhookError(f"webhook-timestamp is {apart:.0f} s away from this machine's time")
    content = body.encode() if isinstance(body, str) else body
    signed = b"%s.%s.%s" % (identity.encode(), stamp.encode(), content)
    given = [
        text.encode() for version, _, text in (one.partition(",") for one in signatures.split()) if version == "v1"
    ]
    found = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        expected = base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256))
        for one in given:
            found |= hmac.compare_digest(expected, one)
    if not found:
        raise WebhookError("no signature of it was made with this secret")
    try:
        return json.loads(content)
    except ValueError:
        raise WebhookError("its body is not JSON") from None


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"the secret is not {PREFIX} and base64") from None
