"""`kill -9` of a node with a broker while clients speak: what the rig judges, and a short run of it."""

from __future__ import annotations

from collections import Counter

import pytest

from homing_rig.kills.run import KillsRun, run_kills


def judged(run: KillsRun) -> list[str]:
    for mortal in run.mortals:
        mortal.accepted = mortal.accepted or [1]
    run._judge()
    return run.result.wrong


def promised() -> KillsRun:
    """All that was promised has come, and a will for each connection that was lost."""
    run = KillsRun(1, 1)
    for qos in (1, 2):
        topic = f"kills/0/{qos}"
        run.writers[0].promised[topic] = {0, 1}
        for client in (*run.alone, run.members[qos % 2]):
            client.got[topic] = Counter({0: 1, 1: 1})
    run.mortals[0].accepted = [1, 3]
    run.heir.got["wills/0"] = Counter({1: 1, 2: 1})
    return run


def test_what_is_as_promised_is_right() -> None:
    run = promised()
    run.alone[0].got["kills/0/1"][1] += 1  # QoS 1 may come again
    run.alone[0].got["kills/0/2"][2] += 1  # and what nobody was promised may come
    assert judged(run) == []
    assert (run.result.promised, run.result.delivered, run.result.again, run.result.wills) == (4, 14, 1, 2)


@pytest.mark.parametrize("topic", ["kills/0/1", "kills/0/2"])
def test_what_is_lost_is_found(topic: str) -> None:
    run = promised()
    del run.alone[1].got[topic][1]
    assert judged(run) == [f"alone-1: 1 messages of {topic} are lost, as 1"]


def test_what_a_share_loses_or_gets_twice_is_found() -> None:
    run = promised()
    run.members[1].got["kills/0/2"][0] += 1
    del run.members[1].got["kills/0/1"][0]
    assert judged(run) == [
        *("the share: 1 messages of kills/0/1 are lost, as 0", "the share: 1 messages of kills/0/2 came again, as 0"),
    ]


def test_wills_that_are_lost_or_come_again_are_found() -> None:
    run = promised()
    run.heir.got["wills/0"] = Counter({2: 2, 3: 1})
    assert judged(run) == [
        *("mortal-0: 1 wills are lost, as 1", "mortal-0: wills came again or without reason: [2, 3]"),
    ]


@pytest.mark.long
async def test_nothing_is_lost_by_kills() -> None:
    result = await run_kills(kills=3, rate=300, seed=1)
    assert result.wrong == []
    assert result.kills == 3
    assert result.promised > 100
    assert result.wills >= 9
