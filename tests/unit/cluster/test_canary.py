from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from app.cluster.canary import (
    CALM_SECONDS,
    EVERY_SECONDS,
    EXCUSED_SECONDS,
    MEMORY_SECONDS,
    PATIENCE_SECONDS,
    SILENT_SECONDS,
    Canary,
)
from app.cluster.local import LocalCluster
from app.core.errors import BrokerUnavailableError, PublishRefusedError, StoreUnavailableError
from app.core.messages import Publication, Receipt
from app.core.topics import canary_topics
from app.mqtt.base import Puback
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.runtime.system import new_charter
from tests.unit.assembly import ManualClock
from tests.waiting import eventually

TOPICS = canary_topics(["homing/+/response", "thing/product/+/events"])
ROUNDS = round(PATIENCE_SECONDS / EVERY_SECONDS)


class Broker(LoopbackMqttClient):
    """Takes what is published and keeps it; each PUBACK is given at once, or as a test says."""

    def __init__(self) -> None:
        super().__init__(LoopbackBroker(), "n1", Counter())
        self.taken: list[Publication] = []
        self.error: Exception | None = None
        self.silent = False
        self.receipt = Receipt.ACKNOWLEDGED
        self.away = False
        self._connected.set()

    def publish(self, publication: Publication) -> Puback:
        if self.away:
            raise BrokerUnavailableError("away")
        puback = Puback(left=True)
        self.taken.append(publication)
        if self.error is not None:
            puback.set_exception(self.error)
        elif not self.silent:
            puback.set_result(self.receipt)
        return puback


class Mesh(LocalCluster):
    """Notes what is to be carried to other nodes."""

    def __init__(self) -> None:
        super().__init__(new_charter())
        self.carried: list[tuple[str, str]] = []
        self.failures = 0
        self.heard = True

    @property
    def listening(self) -> bool:
        return self.heard

    async def carry(self, node_id: str, secret: str) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("away")
        self.carried.append((node_id, secret))


MOST_CARRIED = 2


class Rig:
    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self.clock = ManualClock()
        self.broker = Broker()
        self.cluster = Mesh()
        self.counters: Counter[str] = Counter()
        self.strained = False
        secrets = count(1)
        self.canary = Canary(
            mqtt=self.broker,
            cluster=self.cluster,
            node_id="n1",
            topics=TOPICS,
            strained=lambda: self.strained,
            new_secret=lambda: f"secret{next(secrets)}",
            clock=self.clock,
            counters=self.counters,
            every_seconds=every,
            most_carried=MOST_CARRIED,
        )

    async def rounds(self, number: int, comes_back: Callable[[Publication], bool]) -> None:
        """Go so many rounds, of which those canaries come back that should."""
        for _ in range(number):
            self.broker.taken.clear()
            self.canary.look()
            await asyncio.sleep(0)  # the PUBACKs
            for one in self.broker.taken:
                if comes_back(one):
                    self.canary.arrived(one.payload)
            self.clock.advance(EVERY_SECONDS)


def each(_canary: Publication) -> bool:
    return True


def none(_canary: Publication) -> bool:
    return False


def but_events(canary: Publication) -> bool:
    return not canary.topic.endswith("/events")


async def test_a_broker_that_acknowledges_nothing_is_said_to_and_takes_no_node_away() -> None:
    rig = Rig()
    await rig.rounds(1, each)
    rig.broker.silent = True
    await rig.rounds(round(SILENT_SECONDS / EVERY_SECONDS) - 1, none)
    assert rig.canary.health == "ok"
    await rig.rounds(1, none)
    assert rig.canary.health == "ok, but the broker has acknowledged no message of this node to itself for 3 s"
    rig.canary.forget()
    assert rig.canary.health == "ok"


async def test_a_node_is_well_when_one_canary_has_come_back_through_each_subscription() -> None:
    rig = Rig()
    assert "homing/homing-canary/response, thing/product/homing-canary/events" in rig.canary.health
    await rig.rounds(1, but_events)
    assert "yet (thing/product/homing-canary/events)" in rig.canary.health
    await rig.rounds(1, each)
    assert rig.canary.health == "ok"
    assert (rig.counters["canary.sent"], rig.counters["canary.returned"]) == (4, 3)


@pytest.mark.parametrize("every", [EVERY_SECONDS, CALM_SECONDS])
async def test_rounds_are_close_until_one_has_come_back_through_each_subscription(
    every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(every)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            for one in TOPICS:
                secret = next(sent.payload for sent in rig.broker.taken if sent.topic == one)
                rig.canary.arrived(secret)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr("app.cluster.canary.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await rig.canary.run()
    assert pauses == [EVERY_SECONDS, EVERY_SECONDS, every, every]


async def test_canaries_that_do_not_come_back_are_counted_and_named() -> None:
    rig = Rig()
    await rig.rounds(1, each)
    await rig.rounds(ROUNDS + 1, but_events)
    assert rig.counters["canary.lost"] == 1
    assert rig.canary.health == "ok"  # one may be an accident
    await rig.rounds(1, but_events)
    assert rig.canary.health.startswith("2 messages of this node to itself did not come back (thing/product/")


async def test_a_node_is_well_again_when_canaries_have_come_back_for_a_while() -> None:
    rig = Rig()
    await rig.rounds(2 * ROUNDS, none)
    assert "did not come back" in rig.canary.health
    await rig.rounds(ROUNDS + round(MEMORY_SECONDS / EVERY_SECONDS) + 1, each)
    assert rig.canary.health == "ok"


async def test_a_late_canary_was_not_lost() -> None:
    rig = Rig()
    await rig.rounds(1, each)
    late: list[Publication] = []

    def later(canary: Publication) -> bool:
        late.append(canary)
        return False

    await rig.rounds(2, later)
    await rig.rounds(ROUNDS, each)
    assert "did not come back" in rig.canary.health
    for canary in late:
        rig.canary.arrived(canary.payload)
    assert rig.canary.health == "ok"
    assert rig.counters["canary.late"] == 4


async def test_what_the_broker_has_not_taken_cannot_be_lost() -> None:
    rig = Rig()
    await rig.rounds(1, each)
    rig.broker.silent = True
    await rig.rounds(2 * ROUNDS, none)
    rig.broker.away = True
    await rig.rounds(2 * ROUNDS, none)
    assert rig.counters["canary.lost"] == 0


async def test_a_node_that_may_not_write_canaries_serves_without_them() -> None:
    rig = Rig()
    rig.broker.error = PublishRefusedError("0x87")
    await rig.rounds(2 * ROUNDS, none)
    assert rig.canary.health == "ok"
    assert rig.counters["canary.lost"] == 0
    assert rig.counters["canary.refused"] == rig.counters["canary.sent"]


@pytest.mark.parametrize("why", ["strained", "deaf", "resubscribed", "frozen"])
async def test_nothing_is_judged_when_there_is_another_reason(why: str) -> None:
    rig = Rig()
    await rig.rounds(1, each)
    await rig.rounds(ROUNDS, none)
    match why:
        case "strained":
            rig.strained = True
        case "deaf":
            rig.cluster.heard = False
        case "resubscribed":
            rig.canary.forget()
        case _:
            rig.clock.advance(60)
    await rig.rounds(1, none)
    assert rig.counters["canary.lost"] == 0


async def test_a_trouble_that_does_not_end_excuses_nothing_any_more() -> None:
    rig = Rig()
    rig.strained = True
    await rig.rounds(1, each)
    await rig.rounds(round((EXCUSED_SECONDS + 2 * PATIENCE_SECONDS) / EVERY_SECONDS), none)
    assert "did not come back" in rig.canary.health


async def test_another_incarnation_begins_from_nothing() -> None:
    rig = Rig()
    await rig.rounds(2 * ROUNDS, none)
    rig.canary.begin_again()
    assert "yet" in rig.canary.health
    await rig.rounds(1, each)
    assert rig.canary.health == "ok"


async def test_without_a_connection_there_is_nothing_to_say() -> None:
    rig = Rig()
    rig.broker._connected.clear()
    assert rig.canary.health == "ok"


async def test_a_node_that_leaves_sends_no_more() -> None:
    rig = Rig()
    rig.canary.rest()
    await rig.rounds(1, each)
    assert rig.counters["canary.sent"] == 0


async def test_a_canary_of_another_node_is_carried_there_though_the_store_is_away_for_a_moment() -> None:
    rig = Rig()
    rig.cluster.failures = 1
    rig.canary.arrived(b"n2 abc")
    await eventually(lambda: rig.cluster.carried == [("n2", "abc")])
    rig.canary.returned("of nobody")
    assert rig.counters["canary.returned"] == 0


@pytest.mark.parametrize("payload", [b"", b"n1", b"\xff x", b"a/b c", b"n1 x y", b"{}"])
async def test_rubbish_is_counted(payload: bytes) -> None:
    rig = Rig()
    rig.canary.arrived(payload)
    assert rig.counters["drop.bad_canary"] == 1


async def test_strangers_cannot_make_a_node_carry_without_end() -> None:
    rig = Rig()
    for number in range(MOST_CARRIED + 3):
        rig.canary.arrived(f"n2 {number}".encode())
    assert rig.counters["drop.canary"] == 3
    await eventually(lambda: len(rig.cluster.carried) == MOST_CARRIED)


@pytest.mark.parametrize("before_its_puback", [True, False])
async def test_a_broker_that_sees_nobody_where_this_node_is_is_not_believed_until_it_does(
    *, before_its_puback: bool
) -> None:
    rig = Rig()
    await rig.rounds(1, each)
    assert not rig.canary.contradicted
    rig.broker.receipt = Receipt.UNMATCHED
    await rig.rounds(1, none)
    assert rig.canary.contradicted
    rig.broker.receipt = Receipt.ACKNOWLEDGED
    rig.broker.taken.clear()
    rig.canary.look()
    if not before_its_puback:
        await asyncio.sleep(0)
    for one in rig.broker.taken:
        rig.canary.arrived(one.payload)
    await asyncio.sleep(0)
    assert not rig.canary.contradicted


async def test_another_session_is_believed_anew() -> None:
    rig = Rig()
    rig.broker.receipt = Receipt.UNMATCHED
    await rig.rounds(1, none)
    rig.canary.begin_again()
    assert not rig.canary.contradicted
