"""Places: what is read as one, how far one is from another, and interlocks that judge by it."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.payload import JsonValue
from app.core.profiles.interlocks import Interlock, InterlockVerdict, JudgedAs, LastWord, judge
from app.core.profiles.places import RADIUS, GeoPoint, point_of
from tests.unit.profiles.test_interlocks import profile

LOCK: Final = """[[interlock]]
name = "near"
methods = ["close"]
inputs.at = { topic = "d/{device_id}/state", path = "data", max_age = "5s" }
inputs.dock = { topic = "d/{device_id}/state", path = "dock", max_age = "9s" }
when = [
    { path = "inputs.at", within = { of = "inputs.dock", metres = 100 } },
    { path = "params.to", within = { latitude = 47.3769, longitude = 8.5417, metres = 5000 } },
]
say = "the drone is in its dock"
"""
ZURICH: Final[dict[str, JsonValue]] = {"latitude": 47.3769, "longitude": 8.5417}
BERNE: Final[dict[str, JsonValue]] = {"lat": 46.9480, "lon": 7.4474}
DEGREES: Final = st.tuples(st.floats(-90, 90), st.floats(-180, 180)).map(lambda one: GeoPoint(*one))


@pytest.mark.parametrize(
    ("one", "other", "metres"),
    [  # quarters and halves of a great circle, and a degree of one
        (GeoPoint(0, 0), GeoPoint(90, 0), math.pi / 2 * RADIUS),
        (GeoPoint(0, -90), GeoPoint(0, 90), math.pi * RADIUS),
        (GeoPoint(0, 179.5), GeoPoint(0, -179.5), math.radians(1) * RADIUS),
        (GeoPoint(5, 5), GeoPoint(5, 5), 0.0),
    ],
)
def test_distances_of_great_circles(one: GeoPoint, other: GeoPoint, metres: float) -> None:
    assert one.metres_to(other) == pytest.approx(metres)


@given(DEGREES, DEGREES)
def test_a_distance_is_the_angle_between_two_vectors(one: GeoPoint, other: GeoPoint) -> None:
    (a, b, c), (x, y, z) = vector(one), vector(other)
    cross = math.hypot(b * z - c * y, c * x - a * z, a * y - b * x)
    angle = math.atan2(cross, a * x + b * y + c * z)
    assert one.metres_to(other) == pytest.approx(angle * RADIUS, rel=1e-6, abs=0.2)


def vector(point: GeoPoint) -> tuple[float, float, float]:
    north, east = math.radians(point.latitude), math.radians(point.longitude)
    return math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)


@pytest.mark.parametrize(
    ("value", "point"),
    [
        (ZURICH, (47.3769, 8.5417)),
        ({"lat": 1, "lng": 2}, (1, 2)),
        ({"latitude": 0, "longitude": 8}, (0, 8)),
        ({"latitude": "x", "longitude": 8, "lat": 1, "lon": 2}, (1, 2)),
        ({"latitude": 0, "longitude": 0.0}, None),
        ({"latitude": True, "longitude": 8}, None),
        ({"latitude": "47.3", "longitude": "8.5"}, None),
        ({"latitude": 473769000, "longitude": 85417000}, None),  # degrees times 10^7, as MAVLink has them
        ({"latitude": 10**400, "longitude": 1}, None),
        ({"latitude": math.nan, "longitude": 1}, None),
        ({"latitude": 47.3}, None),
        ([8.5, 47.3], None),
        (None, None),
    ],
)
def test_what_is_read_as_a_place(value: JsonValue, point: tuple[float, float] | None) -> None:
    assert point_of(value) == point


def judged(state: dict[str, Any], to: JsonValue = None, age: float = 1.0) -> InterlockVerdict:
    lock: Interlock = profile(LOCK).interlocks[0]
    word = LastWord(json.dumps(state).encode(), timedelta(seconds=age))
    return judge(lock, {"at": word, "dock": word}, {"to": ZURICH if to is None else to})


def test_a_drone_is_near_its_dock_or_is_not() -> None:
    beside = {"latitude": 47.3770, "longitude": 8.5417}
    near = judged({"data": beside, "dock": ZURICH})
    assert [row["result"] for row in near.evidence] == [JudgedAs.HOLDS] * 2
    assert near.evidence[0]["value"] == "11.1 m away"
    far = judged({"data": BERNE, "dock": ZURICH}, to=BERNE)
    assert [row["result"] for row in far.evidence] == [JudgedAs.VIOLATED] * 2
    assert far.evidence[0] == {
        "path": "inputs.at",
        "wanted": {"within": {"of": "inputs.dock", "metres": 100}},
        "result": JudgedAs.VIOLATED,
        "value": far.evidence[1]["value"],
        "age": "1.0s",
    }


@pytest.mark.parametrize(
    ("state", "age", "because"),
    [
        ({"data": ZURICH}, 1, "its distance from inputs.dock is unknown: its last value has no such member"),
        ({"data": ZURICH, "dock": "here"}, 1, "its distance from inputs.dock is unknown: it tells no place"),
        ({"data": [1, 2], "dock": ZURICH}, 1, "it tells no place: latitude and longitude in degrees, and not 0, 0"),
        ({"dock": ZURICH}, 1, "its last value has no such member"),
        ({"data": ZURICH, "dock": ZURICH}, 6, "it is older than 5s"),
    ],
)
def test_a_place_that_is_unknown_refuses(state: dict[str, Any], age: float, because: str) -> None:
    verdict = judged(state, age=age)
    assert verdict.result is JudgedAs.UNKNOWN
    assert verdict.evidence[0]["because"] == because
