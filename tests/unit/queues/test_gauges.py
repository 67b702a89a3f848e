"""The gauges of queues: how each stands that falls to the node, and never of more than so many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.errors import StoreUnavailableError
from app.core.queues.loans import QueueSource, SettleHow, Settlement, SourceState
from app.queues.gauges import DEAD, EVENTS, MOST_SHOWN, OLDEST, RETENTION, QueueGauges
from app.runtime.families import Labels
from app.store.memory.queues import MemoryQueues
from tests.unit.queues.stage import QueueStage


class LostQueues(MemoryQueues):
    """May be away."""

    away = False

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().states(sources)


def events_in(gauges: QueueGauges) -> Mapping[Labels, float]:
    return dict(gauges)[EVENTS]


def gauges_of(stage: QueueStage, mine: str = "") -> QueueGauges:
    """The gauges of a node to which all queues fall whose ids begin so."""
    return QueueGauges(stage.store, stage.sources, lambda queue: queue.id.startswith(mine), stage.counters)


async def test_a_queue_is_shown_as_it_stands() -> None:
    stage = QueueStage(max_deliveries=1)
    gauges = gauges_of(stage)
    await stage.say(5)
    await stage.feeder.round()
    loan = await stage.take(most=2)
    assert loan is not None
    said = [Settlement(loan.number, SettleHow.DEAD, (0,), reason="poison")]
    await stage.store.settle(stage.source, stage.queue.options.rules, loan.life, said, 1000)
    await gauges.look(stage.queues, await stage.store.now() + 7_000_000)
    states = {"ready": 3, "lent": 1, "later": 0, "held_back": 0}
    assert events_in(gauges) == {("", "alarms", state): size for state, size in states.items()}
    shown = dict(gauges)
    assert shown[DEAD] == {("", "alarms"): 1}
    assert shown[OLDEST]["", "alarms"] == pytest.approx(7, abs=0.1)


async def test_a_queue_tells_how_near_its_first_event_is_to_the_end_of_its_retention() -> None:
    stage = QueueStage()
    gauges = gauges_of(stage)
    await stage.say(1)
    await stage.feeder.round()
    day = stage.sources.retention_us(stage.queue)
    assert day == 24 * 3_600_000_000
    await gauges.look(stage.queues, await stage.store.now() + 9 * day // 10)
    assert dict(gauges)[RETENTION] == {("", "alarms"): pytest.approx(0.9, abs=0.001)}


async def test_what_has_nothing_ready_is_not_old() -> None:
    stage = QueueStage()
    gauges = gauges_of(stage)
    await gauges.look(stage.queues, await stage.store.now())
    assert dict(gauges)[OLDEST] == dict(gauges)[RETENTION] == {("", "alarms"): 0}


async def test_the_delay_of_a_queue_is_no_waiting() -> None:
    """Else a queue with a delay of two hours would be old for ever."""
    stage = QueueStage()
    gauges = gauges_of(stage)
    await stage.say(1)
    await stage.feeder.round()
    delayed = replace(stage.queue, options=replace(stage.queue.options, delay=timedelta(hours=2)))
    for seconds, waits in ((7_000, 0), (7_260, 60)):
        await gauges.look([delayed], await stage.store.now() + seconds * 1_000_000)
        assert dict(gauges)[OLDEST]["", "alarms"] == pytest.approx(waits, abs=0.1)


async def test_each_queue_is_shown_by_one_node_and_only_the_first_ones() -> None:
    stage = QueueStage()
    queues = [replace(stage.queue, id=f"{place % 2}Q{place}", name=f"q{place:03}") for place in range(MOST_SHOWN + 7)]
    shown: list[str] = []
    for node in "01":
        gauges = gauges_of(stage, mine=node)
        await gauges.look(queues, await stage.store.now())
        shown += [name for _, name in dict(gauges)[DEAD]]
    assert sorted(shown) == [one.name for one in queues[:MOST_SHOWN]]
    assert stage.counters["queues.not_shown"] == 7


async def test_nothing_old_is_shown_while_the_store_is_away() -> None:
    stage = QueueStage()
    store = LostQueues(stage.clock, lambda: "00000001")
    stage.store = store
    gauges = gauges_of(stage)
    await gauges.look(stage.queues, 1)
    assert events_in(gauges)
    store.away = True
    with pytest.raises(StoreUnavailableError):
        await gauges.look(stage.queues, 1)
    assert not dict(gauges)
