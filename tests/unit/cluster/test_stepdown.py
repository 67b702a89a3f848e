"""A node that has lost the store while others have it leaves its share of the responses to those."""

from __future__ import annotations

import asyncio
from collections import Counter

from app.cluster.stepdown import (
    EVERY_SECONDS,
    HAD_SECONDS,
    LATE_SECONDS,
    LOST_SECONDS,
    PATIENCE_SECONDS,
    REST_SECONDS,
    StepDown,
)
from app.core.cluster.notices import SessionNotice, Word
from app.core.errors import StoreUnavailableError
from tests.unit.assembly import ManualClock
from tests.waiting import turns


class Member:
    """A node: its store can be away, and the words that it says are kept."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.counters: Counter[str] = Counter()
        self.has_store = True
        self.connected = True
        self.said: list[tuple[Word, str]] = []
        self.took = 0.0
        self.cuts = 0
        self.step_down = StepDown(
            store=self,
            connected=lambda: self.connected,
            say=lambda word, asker: self.said.append((word, asker)),
            cut=self.cut,
            clock=self.clock,
            counters=self.counters,
        )

    async def now(self) -> int:
        self.clock.advance(self.took)
        if not self.has_store:
            raise StoreUnavailableError("away")
        return 0

    def cut(self) -> None:
        self.cuts += 1

    async def lives(self, seconds: float) -> None:
        """Look as often as it would in so many seconds."""
        for _ in range(round(seconds / EVERY_SECONDS)):
            self.clock.advance(EVERY_SECONDS)
            await self.step_down.look()

    async def hears(self, word: Word) -> None:
        self.step_down.heard(SessionNotice(word, "n2", "i-n2"))
        await turns(5)


async def in_trouble() -> Member:
    """A node that had the store, and has lost it for so long that it asks."""
    member = Member()
    await member.lives(1)
    member.has_store = False
    await member.lives(LOST_SECONDS + 2 * EVERY_SECONDS)
    return member


async def test_a_node_asks_when_the_store_is_away_and_not_before() -> None:
    member = Member()
    await member.lives(1)
    member.has_store = False
    await member.lives(LOST_SECONDS)
    assert member.said == []
    await member.lives(2 * EVERY_SECONDS)
    assert member.said == [(Word.STORE, "")]


async def test_a_node_whose_peer_has_the_store_leaves_its_session_and_breaks_its_connection() -> None:
    member = await in_trouble()
    await member.hears(Word.STORED)
    assert member.said[-1] == (Word.LEFT, "")
    assert (member.cuts, member.counters["stepdown.left"]) == (1, 1)


async def test_a_node_whose_store_is_back_stays() -> None:
    member = await in_trouble()
    member.has_store = True
    await member.lives(EVERY_SECONDS)
    await member.hears(Word.STORED)
    assert member.cuts == 0


async def test_a_node_that_did_not_run_does_not_take_the_store_for_lost() -> None:
    member = Member()
    await member.lives(1)
    member.has_store, member.took = False, PATIENCE_SECONDS + LATE_SECONDS
    await member.lives(10)
    await member.hears(Word.STORED)
    assert (member.said, member.cuts) == ([], 0)


async def test_a_node_that_nobody_answers_keeps_what_it_has() -> None:
    member = await in_trouble()
    await member.lives(60)
    assert member.cuts == 0


async def test_an_answer_to_a_node_that_has_the_store_changes_nothing() -> None:
    member = Member()
    await member.lives(1)
    await member.hears(Word.STORED)
    member.has_store = False
    await member.lives(EVERY_SECONDS)
    assert member.cuts == 0


async def test_a_node_without_a_connection_asks_nobody() -> None:
    member = Member()
    member.connected = member.has_store = False
    await member.lives(10)
    assert member.said == []


async def test_a_node_that_loses_the_store_over_and_over_keeps_its_share() -> None:
    member = await in_trouble()
    await member.hears(Word.STORED)
    asked = len(member.said)
    await member.lives(REST_SECONDS - 1)
    await member.hears(Word.STORED)
    assert (member.cuts, len(member.said)) == (1, asked)
    await member.lives(2)
    await member.hears(Word.STORED)
    assert member.cuts == 2


async def test_a_peer_that_has_had_the_store_all_the_while_says_so() -> None:
    peer = Member()
    await peer.lives(HAD_SECONDS + 1)
    await peer.hears(Word.STORE)
    assert peer.said == [(Word.STORED, "i-n2")]


async def test_a_peer_that_has_lost_the_store_or_has_just_got_it_back_says_nothing() -> None:
    peer = Member()
    await peer.lives(HAD_SECONDS + 1)
    peer.has_store = False
    await peer.hears(Word.STORE)
    peer.has_store = True
    await peer.lives(HAD_SECONDS - 1)
    await peer.hears(Word.STORE)
    assert peer.said == []


async def test_a_peer_that_did_not_run_has_no_proof_that_the_store_is_there() -> None:
    peer = Member()
    await peer.lives(HAD_SECONDS + 1)
    peer.has_store, peer.took = False, PATIENCE_SECONDS + LATE_SECONDS
    await peer.hears(Word.STORE)
    assert peer.said == []


async def test_a_flood_of_questions_asks_the_store_once_at_a_time() -> None:
    peer = Member()
    await peer.lives(HAD_SECONDS + 1)
    for _ in range(1000):
        peer.step_down.heard(SessionNotice(Word.STORE, "n2", "i-n2"))
    await turns(5)
    assert peer.said == [(Word.STORED, "i-n2")]


async def test_what_it_does_ends_with_it() -> None:
    member = Member()
    running = asyncio.create_task(member.step_down.run())
    await turns(2)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
