"""The party that is in trouble: a table, and the doubts that blame nobody."""

from __future__ import annotations

import pytest

from app.core.commands.diagnosis import Verdict
from app.core.overview import (
    LATELY_US,
    PARTIES,
    WARMING_UP_US,
    JudgedFailure,
    NodeDeath,
    NodeGlance,
    Party,
    grouped,
    judge_cluster,
    party_of,
)

NOW = 1_800_000_000_000_000
WELL = {"store": "ok", "mqtt": "ok", "cluster": "ok, but slow"}


def node(name: str = "node-a", **facts: object) -> NodeGlance:
    return NodeGlance(name, **{"answered": True, "checks": WELL, "age_us": 10**9, **facts})  # type: ignore[arg-type]


def failure(party: Party | None, *, ago: int = 0, device: str = "d", number: int = 1) -> JudgedFailure:
    verdict = Verdict.NO_IDEA if party is None else Verdict.SILENT
    return JudgedFailure(NOW - ago, f"c{number}", device, "dji", "fly", verdict, party, "it did not answer")


@pytest.mark.parametrize(
    ("nodes", "party", "said"),
    [
        ([node()], None, "nothing is in trouble right now"),
        (
            [node(checks={**WELL, "store": "away"}), node("b")],
            Party.HOMING,
            "1 of 2 nodes (node-a) is not ready: store",
        ),
        ([node(), node("b", answered=False, checks={})], Party.HOMING, "1 of 2 nodes (b) did not answer"),
        ([node(fullest=("pending", 95, 100))], Party.HOMING, "nearly full: pending has 95 of 100"),
        ([node(fullest=("pending", 80, 100))], None, "nothing"),
        ([node(checks={**WELL, "mqtt": "no connection"})] * 2, Party.BROKER, "2 of 2 nodes (node-a, node-a): no conn"),
        ([node(checks={**WELL, "canary": "none came home"})], Party.BROKER, "none came home"),
        ([node(checks={**WELL, "canary": "ok, but none acknowledged"})], Party.BROKER, "(node-a): none acknowledged"),
        ([node(checks={**WELL, "canary": "none yet"}, age_us=WARMING_UP_US - 1)], None, "nothing"),
        ([node(checks={"store": "away", "mqtt": "no connection"})], Party.HOMING, "store"),
    ],
)
def test_the_first_party_that_is_in_trouble_is_named(nodes: list[NodeGlance], party: Party | None, said: str) -> None:
    found = judge_cluster(nodes, [failure(Party.DEVICE)] if party else [], NOW, named=True)
    assert found.party is party
    assert said in found.text


@pytest.mark.parametrize(
    ("nodes", "death", "dead"),
    [
        ([node(version="0.3.0")], NodeDeath("b", NOW - 5), True),
        ([node(), node("b")], NodeDeath("b", NOW - 5), False),  # it is back
        ([node(version="0.3.0", age_us=4)], NodeDeath("b", NOW - 5), False),  # another one has taken its place
        ([node(version="0.3.0")], NodeDeath("b", NOW - LATELY_US - 1), False),
    ],
)
def test_a_node_that_died_is_named_until_one_begins_in_its_place(
    nodes: list[NodeGlance], death: NodeDeath, *, dead: bool
) -> None:
    found = judge_cluster(nodes, [failure(Party.DEVICE)], NOW, named=True, deaths=[death])
    if dead:
        assert (found.party, found.since) == (Party.HOMING, death.at)
        assert found.text == "1 of 2 nodes (b) gone: killed or cut off, and none has begun since"
        assert "(b)" not in judge_cluster(nodes, [], NOW, named=False, deaths=[death]).text
    else:
        assert found.party is Party.DEVICE


def test_without_the_right_no_node_is_named() -> None:
    found = judge_cluster([node("secret", checks={"store": "away"})], [], NOW, named=False)
    assert "secret" not in found.text


def test_the_party_of_most_failures_lately_is_in_trouble() -> None:
    devices = [failure(Party.DEVICE, device=f"d{number}", ago=number) for number in range(3)]
    found = judge_cluster([node()], [*devices, failure(Party.CALLER)], NOW, named=True)
    assert (found.party, found.since) == (Party.DEVICE, NOW - 2)
    assert found.text == "3 commands to 3 devices failed in the last ten minutes; the latest: it did not answer"


@pytest.mark.parametrize("one", [failure(None), failure(Party.DEVICE, ago=LATELY_US + 1)], ids=["no idea", "long ago"])
def test_what_is_not_certain_or_long_ago_blames_nobody(one: JudgedFailure) -> None:
    found = judge_cluster([node()], [one], NOW, named=True)
    assert found.party is None
    assert found.text == "nothing is in trouble right now; 1 command failed in the last hour"


def test_doubtful_verdicts_belong_to_nobody() -> None:
    certain = {verdict for verdict in Verdict if party_of(verdict, "") is not None}
    assert certain == set(PARTIES)
    assert not certain & {
        Verdict.NO_IDEA,
        Verdict.WAITING,
        Verdict.CANCELLED,
        Verdict.ANSWERED,
        Verdict.NOT_HANDED_OVER,
    }
    assert party_of(Verdict.NOT_HANDED_OVER, "device_offline") is Party.DEVICE
    assert party_of(Verdict.NOT_HANDED_OVER, "packet_too_large") is Party.CALLER
    assert party_of(Verdict.NOT_HANDED_OVER, "not_sent") is None


def test_failures_are_grouped_by_what_they_have_in_common() -> None:
    some = [failure(Party.DEVICE, device="a", ago=5, number=1), failure(Party.DEVICE, device="b", number=2)]
    groups = grouped([*some, failure(None, number=3)])
    assert [(one.count, one.devices, one.first_at, one.newest.command_id) for one in groups] == [
        (2, 2, NOW - 5, "c2"),
        (1, 1, NOW, "c3"),
    ]
