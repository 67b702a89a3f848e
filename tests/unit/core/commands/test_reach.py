from __future__ import annotations

import json

import pytest

from app.core.commands.reach import NEVER_LEFT, NOTHING_KNOWN, DeliveryProgress, timed_out


@pytest.mark.parametrize(
    ("reach", "says", "subscribers"),
    [
        (NOTHING_KNOWN, "it is not known whether it was sent", "unknown"),
        (NEVER_LEFT, "not handed over to the MQTT broker", "unknown"),
        (DeliveryProgress(published=True, acknowledged=False), "may or may not have been delivered", "unknown"),
        (DeliveryProgress(published=True), "QoS 0", "unknown"),
        (DeliveryProgress(published=True, acknowledged=True, subscribed=False), "nobody was subscribed", "none"),
        (
            DeliveryProgress(published=True, acknowledged=True, subscribed=True),
            "acknowledged it, and no answer came",
            "some",
        ),
        (DeliveryProgress(published=True, acknowledged=True), "acknowledged it, and no answer came", "unknown"),
    ],
)
def test_it_says_what_is_known(reach: DeliveryProgress, says: str, subscribers: str) -> None:
    error = json.loads(timed_out(reach))
    assert error["code"] == "timed_out"
    assert says in error["message"]
    assert error["known"] == {
        "published": reach.published,
        "acknowledged": reach.acknowledged,
        "acknowledged_at": None,
        "subscribers": subscribers,
    }


def test_the_instant_is_told_as_everywhere() -> None:
    reach = DeliveryProgress(published=True, acknowledged=True, acknowledged_at=1_700_000_000_123_456)
    assert json.loads(timed_out(reach))["known"]["acknowledged_at"] == "2023-11-14T22:13:20.123Z"
