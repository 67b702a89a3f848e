"""The faults that the rig finds in a log of events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.mqtt.options import MqttOptions
from homing_rig.chaos.kept_events import Kept
from homing_rig.talkers import Talkers

TOPIC = "homing/SN1/event"


def judged(said: int, numbers: Sequence[int], unsure: Sequence[int] = ()) -> dict[str, int]:
    talkers, kept = Talkers(lambda client_id: MqttOptions(client_id=client_id, host="127.0.0.1"), [TOPIC]), Kept()
    talkers.said[TOPIC] = said
    talkers.unsure[TOPIC].update(unsure)
    for position, number in enumerate(numbers):
        kept.take(TOPIC, number, position)
    return {"lost": kept.missing(talkers), "jumped": kept.jumped(talkers), "repeated": kept.repeated()}


@pytest.mark.parametrize(
    ("numbers", "lost", "jumped", "repeated"),
    [
        ((0, 1, 2, 3), 0, 0, 0),
        ((0, 1, 3), 1, 1, 0),
        ((0, 1, 2), 1, 0, 0),
        ((0, 2, 1, 3), 0, 2, 0),
        # Taken over: all without PUBACK comes again.
        ((0, 1, 2, 1, 2, 3), 0, 0, 2),
        # Who was the intake writes in between: whoever reads goes back, and then ahead.
        ((0, 1, 2, 1, 3), 0, 1, 1),
    ],
)
def test_a_log_is_judged_by_what_each_topic_said(numbers: Sequence[int], lost: int, jumped: int, repeated: int) -> None:
    assert judged(4, numbers) == {"lost": lost, "jumped": jumped, "repeated": repeated}


def test_what_nobody_acknowledged_may_be_there_or_not() -> None:
    nothing_wrong = {"lost": 0, "jumped": 0, "repeated": 0}
    assert judged(4, (0, 1, 3), unsure=[2]) == nothing_wrong == judged(4, (0, 1, 2, 3), unsure=[2])


def test_positions_grow_and_silence_is_known() -> None:
    kept = Kept()
    for number, position in enumerate((1_000_000, 4_500_000, 4_500_000, 4_400_000)):
        kept.take(TOPIC, number, position)
    assert kept.fell() == 2
    assert kept.longest_silence() == 3.4
