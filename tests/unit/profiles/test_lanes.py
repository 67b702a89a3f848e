"""Lanes in the files of profiles: which methods go through one, and what a file must not say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.errors import ConfigurationError
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.profiles.loader import parse_profile
from tests.unit.profiles.test_interlocks import HEAD

LAND = '[[method]]\nname = "land"\ntitle = "Land"\ndanger = "low"\n'
CLOSED = HEAD.replace('description = ""', 'description = ""\nmethods = "closed"') + LAND


def lane(name: str, *further: str, methods: str = '["fly_*"]') -> str:
    return "\n".join(("[[lane]]", f'name = "{name}"', f"methods = {methods}", *further, ""))


def test_methods_find_their_lane() -> None:
    one = parse_profile(
        HEAD + lane("flight", 'order = "fifo"', 'rest = "5s"') + lane("lamps", "width = 3", methods='["lamp"]'), "p"
    )
    flight, lamps = one.lane_of("fly_home"), one.lane_of("lamp")
    assert flight is not None
    assert lamps is not None
    assert flight.lane == CommandLane("flight", LaneOrder.FIFO, 1, timedelta(seconds=5))
    assert (lamps.lane, lamps.hold) == (CommandLane("lamps", LaneOrder.PARALLEL, 3), timedelta(seconds=30))
    assert one.lane_of("land") is None
    looks = parse_profile(HEAD + lane("looks", 'order = "lifo"', "width = 3"), "p").lane_of("fly_home")
    assert looks is not None
    assert looks.lane == CommandLane("looks", LaneOrder.LIFO, 3)
    refusing = parse_profile(HEAD + lane("flight", 'hold = "0s"'), "p").lane_of("fly_home")
    assert refusing is not None
    assert not refusing.hold


def test_a_lane_keeps_a_pace_excludes_others_and_stops_after_a_failure() -> None:
    """Two lanes may exclude each other: each knows by whom it is excluded."""
    one = parse_profile(
        HEAD
        + lane("flight", 'pace = "3/s"', 'excludes = ["service"]', 'on_failure = "stop"')
        + lane("service", 'pace = "30/m"', 'excludes = ["lamps", "flight"]', methods='["clean"]')
        + lane("lamps", methods='["lamp"]'),
        "p",
    )
    flight, service, lamps = (one.lane_of(method) for method in ("fly_home", "clean", "lamp"))
    assert flight is not None
    assert flight.lane == CommandLane(
        "flight", pace=timedelta(microseconds=333_333), excludes=("service",), excluded_by=("service",), stops=True
    )
    assert service is not None
    assert service.lane == CommandLane(
        "service", pace=timedelta(seconds=2), excludes=("flight", "lamps"), excluded_by=("flight",)
    )
    assert lamps is not None
    assert lamps.lane == CommandLane("lamps", excluded_by=("service",))


@pytest.mark.parametrize(
    ("head", "lanes", "place", "says"),
    [
        (HEAD, lane("a", methods="[]"), "lane.0.methods", "1"),
        (HEAD, lane("a") + lane("a", methods='["b"]'), "lane.1.name", "a is there already"),
        (
            HEAD,
            lane("a") + lane("b", methods='["c", "fly_home"]'),
            "lane.1.methods.1",
            "'fly_home' is in lane a already",
        ),
        (HEAD, lane("a", methods='["fly_home"]') + lane("b"), "lane.1.methods.0", "'fly_home' is in lane a already"),
        (CLOSED, lane("a"), "lane.0.methods.0", "'fly_*' fits no method of the profile: land"),
        (CLOSED, lane("a", methods='["l*"]') + lane("b", methods='["*d"]'), "lane.1.methods.0", "'land' is in lane a"),
        (HEAD, lane("a", "width = 101"), "lane.0.width", "100"),
        (HEAD, lane("a", "width = 2", 'order = "fifo"'), "lane.0", "a lane of order fifo has one at a time"),
        (HEAD, lane("a", 'order = "random"'), "lane.0.order", "'parallel', 'fifo', 'fifo_ack', 'lifo' or 'latest'"),
        (HEAD, lane("a", "width = 2", 'order = "fifo_ack"'), "lane.0", "a lane of order fifo_ack has one at a time"),
        (HEAD, lane("a", 'rest = "1s"', 'order = "fifo_ack"'), "lane.0", "does not wait; allowed: 0s"),
        (HEAD, lane("a", 'hold = "31d"'), "lane.0.hold", "is not a duration"),
        (HEAD, lane("a", 'hold = "721h"'), "lane.0.hold", "out of range"),
        (HEAD, lane("a", 'rest = "2h"'), "lane.0.rest", "allowed: 0ms to 1h"),
        (HEAD, lane("A"), "lane.0.name", ""),
        (HEAD, lane("a", "pace = 2"), "lane.0.pace", "such as 2/s or 30/m, from 1/m to 10/s"),
        (HEAD, lane("a", 'pace = "0/s"'), "lane.0.pace", "is no pace"),
        (HEAD, lane("a", 'pace = "11/s"'), "lane.0.pace", "from 1/m to 10/s"),
        (HEAD, lane("a", 'pace = "601/m"'), "lane.0.pace", "from 1/m to 10/s"),
        (HEAD, lane("a", 'pace = "2/h"'), "lane.0.pace", "is no pace"),
        (HEAD, lane("a", 'on_failure = "wait"'), "lane.0.on_failure", "'go_on' or 'stop'"),
        (HEAD, lane("a", 'excludes = ["b"]'), "lane.0.excludes.0", "as the file has no other lane"),
        (HEAD, lane("a", 'excludes = ["a"]') + lane("b", methods='["c"]'), "lane.0.excludes.0", "allowed: b"),
        (
            HEAD,
            lane("a", 'excludes = ["b", "b"]') + lane("b", methods='["c"]'),
            "lane.0.excludes.1",
            "b is there already",
        ),
        (
            HEAD,
            lane("a", 'excludes = ["b"]') + lane("b", 'order = "fifo_ack"', methods='["c"]'),
            "lane.0.excludes.0",
            "b has order fifo_ack",
        ),
        (HEAD, "".join(lane(f"l{i}", methods=f'["m{i}"]') for i in range(17)), "lane.16", "allowed: 16 lanes"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_line_and_key(head: str, lanes: str, place: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_profile(head + lanes, "p.toml")
    text = str(refused.value)
    assert text.startswith("p.toml:")
    assert place in text
    assert says in text
