"""Signatures, judged by the library that receivers use."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from app.core.webhooks.endpoints import OVERLAP_US
from app.core.webhooks.signatures import Signer
from tests.unit.core.webhooks.test_endpoints import endpoint

ROOT = b"0123456789abcdef0123456789abcdef"
SIGNER = Signer(ROOT)


def now() -> int:
    """The library looks at the clock itself."""
    return round(datetime.now(UTC).timestamp() * 1_000_000)  # noqa: TID251


@given(st.text(), st.integers(min_value=0))
def test_the_receivers_library_verifies_it(text: str, number: int) -> None:
    body = json.dumps({"text": text}).encode()
    headers = dict(SIGNER.headers(endpoint(), f"evt_{number}", body, now()))
    Webhook(SIGNER.secret(endpoint())).verify(body, headers)


def test_what_was_changed_on_the_way_is_not_verified() -> None:
    headers = dict(SIGNER.headers(endpoint(), "evt_1", b"{}", now()))
    library = Webhook(SIGNER.secret(endpoint()))
    for tampered, body in ((headers, b"{ }"), (headers | {"webhook-id": "evt_2"}, b"{}")):
        with pytest.raises(WebhookVerificationError):
            library.verify(body, tampered)


def test_during_a_rotation_either_secret_verifies_it() -> None:
    before = endpoint()
    after = before.rotated(now())
    headers = dict(SIGNER.headers(after, "evt_1", b"{}", now()))
    for secret in (SIGNER.secret(before), SIGNER.secret(after)):
        Webhook(secret).verify(b"{}", headers)
    later = dict(SIGNER.headers(after, "evt_1", b"{}", now() + OVERLAP_US))
    assert " " not in later["webhook-signature"]


def test_no_two_endpoints_share_a_secret() -> None:
    other = Signer(ROOT[::-1])
    assert SIGNER.secret(endpoint()) != SIGNER.secret(endpoint().rotated(1)) != other.secret(endpoint())
    assert SIGNER.fingerprint != other.fingerprint
    assert SIGNER.fingerprint == Signer(ROOT).fingerprint
