"""The words that people may write about a fleet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from homing_simulator.options import FleetOptions, Range, device_ids, parse_range, parse_share


def test_a_range_has_two_durations_or_one() -> None:
    assert parse_range("50ms..2s") == Range(timedelta(milliseconds=50), timedelta(seconds=2))
    assert parse_range("1s") == Range(timedelta(seconds=1), timedelta(seconds=1))


@pytest.mark.parametrize("text", ["", "50", "50ms..", "..2s", "50ms...2s", "50ms-2s", "-1s..2s", "2s..50ms"])
def test_a_wrong_range_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range") as refused:
        parse_range(text)
    assert "allowed" in str(refused.value) or "ends before it begins" in str(refused.value)


@pytest.mark.parametrize(("text", "share"), [("0%", 0.0), ("1%", 0.01), ("0.5%", 0.005), ("100%", 1.0)])
def test_a_share_is_per_cent(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "1", "%", "101%", "-1%", "1 %", "1e1%", "nan%", "٣%"])
def test_a_wrong_share_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a share; allowed: 0% to 100%"):
        parse_share(text)


def test_devices_count_on_from_the_digits_of_the_first() -> None:
    assert device_ids("SN0009", 3) == ["SN0009", "SN0010", "SN0011"]
    assert device_ids("7", 2) == ["7", "8"]
    assert device_ids("D2-99", 2) == ["D2-99", "D2-100"]
    assert device_ids("roof/mast 9", 2) == ["roof%2Fmast%209", "roof%2Fmast%2010"]
    assert device_ids("mast%209", 2) == ["mast%209", "mast%2010"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"profile": "mavlink"}, r"profile: 'mavlink' is unknown; allowed: dji, homing"),
        ({"devices": 0}, "devices: 0; allowed are 1 to"),
        ({"devices_per_session": 0}, "devices_per_session"),
        ({"max_waiting": 0}, "max_waiting"),
        ({"drop": -0.1}, "each is 0% to 100%"),
        ({"drop": 0.6, "late": 0.6}, "together they are 100% at most"),
        ({"first_device": "dock"}, "first_device: 'dock' does not end with a number"),
        ({"first_device": "a+b1"}, "first_device: '\\+'"),
    ],
)
def test_wrong_options_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        FleetOptions(**wrong)


def test_shares_that_add_up_to_the_whole_are_allowed() -> None:
    FleetOptions(drop=0.1, duplicate=0.2, late=0.3, garbage=0.3, refuse=0.1)
