"""Webhooks are verified as the library of Standard Webhooks signs them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks

from homing_client.webhooks import WebhookError, verify

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
OTHER = "whsec_" + base64.b64encode(b"another one, quite as long").decode()
BODY = '{"type": "command.succeeded", "data": {"id": "042-01J", "result": "é"}}'
NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def signed(secret: str = SECRET, body: str = BODY, at: datetime = NOW) -> dict[str, str]:
    return {
        "Webhook-Id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": standardwebhooks.Webhook(secret).sign("msg_1", at, body),
    }


def test_what_the_library_signs_is_accepted() -> None:
    for body in (BODY, BODY.encode()):
        assert verify(signed(), body, SECRET, now=NOW.timestamp())["data"]["result"] == "é"


def test_what_is_accepted_is_accepted_by_the_library() -> None:
    now = datetime.now(UTC)  # noqa: TID251 - the library looks at the clock itself
    headers = signed(at=now)
    lower = {name.lower(): value for name, value in headers.items()}
    assert standardwebhooks.Webhook(SECRET).verify(BODY, lower) == verify(headers, BODY, SECRET)


def test_while_a_secret_is_rotated_either_will_do() -> None:
    both = signed() | {
        "webhook-signature": f"{signed(OTHER)['webhook-signature']} v2,x {signed()['webhook-signature']}"
    }
    assert verify(both, BODY, SECRET, now=NOW.timestamp())
    assert verify(signed(OTHER), BODY, [SECRET, OTHER], now=NOW.timestamp())


@pytest.mark.parametrize(
    ("change", "body", "after"),
    [
        ({}, BODY + " ", 0),
        ({"Webhook-Id": "msg_2"}, BODY, 0),
        ({"webhook-timestamp": str(int(NOW.timestamp()) + 1)}, BODY, 0),
        ({"webhook-timestamp": "soon"}, BODY, 0),
        ({"webhook-timestamp": "²"}, BODY, 0),
        ({"webhook-signature": "v1,"}, BODY, 0),
        ({"webhook-signature": ""}, BODY, 0),
        ({"webhook-signature": "v1,é"}, BODY, 0),
        ({}, BODY, 301),
        ({}, BODY, -301),
    ],
)
def test_what_was_changed_or_is_old_is_refused(change: dict[str, str], body: str, after: int) -> None:
    now = (NOW + timedelta(seconds=after)).timestamp()
    with pytest.raises(WebhookError):
        verify(signed() | change, body, SECRET, now=now)
    with pytest.raises(WebhookError, match="webhook-signature is missing"):
        verify({"webhook-id": "1", "webhook-timestamp": "1"}, BODY, SECRET)
    with pytest.raises(WebhookError):
        verify(signed(OTHER), BODY, SECRET, now=NOW.timestamp())


def test_a_secret_that_is_none_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="base64"):
        verify(signed(), BODY, "whsec_?", now=NOW.timestamp())
