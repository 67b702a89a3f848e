"""The claimant between the store's reply and the broker: it sends at once or not at all, and undoes only on proof."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.callbacks.observer import Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.commands.deadlines.expirer import Expirer
from app.commands.held.claim_keeper import ClaimKeeper
from app.commands.held.claimant import CLAIM_SECONDS, Claimant
from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.errors import BrokerUnavailableError, PublishUnconfirmedError, StoreUnavailableError
from app.core.messages import Receipt
from app.runtime.listeners import Listeners
from app.store.holds import Claimed, Restarted, Waits
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock, answer, registration

HOUR = timedelta(hours=1)
S = CommandState


class HookedStore(MemoryStateStore):
    """Lets something happen after a claim, before its reply is there."""

    after_claim: Callable[[str], Awaitable[None]] | None = None

    restarted = False

    async def claim(
        self, command_id: str, node_id: str, token: str, starts: Collection[str] = ()
    ) -> Claimed | Waits | Restarted | None:
        if self.restarted:
            return Restarted("second")
        claimed = await super().claim(command_id, node_id, token, starts)
        if self.after_claim is not None:
            await self.after_claim(command_id)
        return replace(claimed, record=(b"state", b"pending")) if isinstance(claimed, Claimed) else claimed


class Outlet:
    """The way to the broker. `refuses` is raised by it; `believed` tells whether the broker tells who is subscribed."""

    connected = True

    def __init__(self) -> None:
        self.handed_over: Listeners[Command, Any] = Listeners()
        self.sent: list[str] = []
        self.pubacks: list[asyncio.Future[Receipt]] = []
        self.refuses: Exception | None = None
        self.believed = True
        self.absence = SimpleNamespace(told=lambda _profile: None, tells=lambda _profile: self.believed)

    def publish(self, command: Command, **_how: object) -> tuple[SimpleNamespace, asyncio.Future[Receipt]]:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append(command.id)
        puback = asyncio.get_running_loop().create_future()
        self.pubacks.append(puback)
        return SimpleNamespace(payload=b"{}", topic="dock-1/do"), puback


class Node:
    """A node with a claimant over a store of its own."""

    def __init__(self) -> None:
        self.clock, self.counters = ManualClock(), Counter[str]()
        self.store, self.outlet = HookedStore(ManualClock()), Outlet()
        self.serves = True
        observers = Observers(self.counters)
        waiters = Waiters(self.clock, observers, most=10)
        self.open = OpenCommands(self.clock, waiters, observers, most=10)
        self.again: list[str] = []
        self.claims = ClaimKeeper(
            store=self.store,
            starts=self.store.starts,
            cancel=cast("Any", None),
            directory=cast("Any", SimpleNamespace(leased=frozenset())),
            node_id="node-a",
            new_secret=iter(map(str, range(100))).__next__,
            lease=5,
            clock=self.clock,
            counters=self.counters,
        )
        self.claimant = Claimant(
            store=self.store,
            claims=self.claims,
            publisher=cast("Any", self.outlet),
            open_commands=self.open,
            expirer=Expirer(
                store=self.store,
                open_commands=self.open,
                clock=self.clock,
                node_id="node-a",
                counters=self.counters,
            ),
            serves=lambda: self.serves,
            clock=self.clock,
            counters=self.counters,
            observers=observers,
        )
        self.claimant.held_again.add(lambda _device, command_id: self.again.append(command_id))

    async def hold(self, **members: Any) -> Registration:
        held = registration(held=HOUR, if_offline=IfOffline.HOLD, **members)
        await self.store.register(held)
        return held

    async def claim(self, held: Registration) -> CommandState:
        """Claim it, and return how it stands when all that was begun with that is done."""
        (command,) = await self.store.get([held.command_id])
        assert command is not None
        assert await self.claimant.claim(command) is None
        return await self.state_of(held)

    async def puback(self, held: Registration, outcome: Receipt | Exception) -> CommandState:
        if isinstance(outcome, Exception):
            self.outlet.pubacks[-1].set_exception(outcome)
        else:
            self.outlet.pubacks[-1].set_result(outcome)
        await asyncio.sleep(0)
        return await self.state_of(held)

    async def state_of(self, held: Registration) -> CommandState:
        await self.claimant.drained()
        (command,) = await self.store.get([held.command_id])
        assert command is not None
        return command.state


@pytest.fixture
def node() -> Node:
    return Node()


async def test_it_is_sent_in_the_turn_of_the_reply(node: Node) -> None:
    held = await node.hold()
    assert await node.claim(held) is S.PENDING
    assert node.outlet.sent == [held.command_id]
    assert len(node.open) == 1


@pytest.mark.parametrize(
    ("frozen", "timeout"), [(CLAIM_SECONDS + 0.1, HOUR), (0.6, timedelta(seconds=0.5))], ids=["long", "past-its-time"]
)
async def test_c105_a_node_that_froze_until_the_reply_sends_nothing(
    node: Node, frozen: float, timeout: timedelta
) -> None:
    async def freeze(_id: str) -> None:
        node.clock.now += frozen

    node.store.after_claim = freeze
    held = await node.hold(timeout=timeout)
    assert await node.claim(held) is S.HELD
    assert (node.outlet.sent, node.again, len(node.open)) == ([], [held.command_id], 0)
    assert node.counters["held.given_back.late"] == 1


async def test_c105_a_node_that_lost_its_lease_meanwhile_sends_nothing(node: Node) -> None:
    async def lose(_id: str) -> None:
        node.serves = False

    node.store.after_claim = lose
    held = await node.hold()
    assert await node.claim(held) is S.HELD
    assert node.outlet.sent == []


async def test_c105_what_was_cancelled_before_the_reply_is_not_sent(node: Node) -> None:
    async def cancel(command_id: str) -> None:
        node.open.complete((await node.store.finish(command_id, S.CANCELLED, "node-b")).outcome)

    node.store.after_claim = cancel
    held = await node.hold()
    assert await node.claim(held) is S.CANCELLED
    assert (node.outlet.sent, node.again, len(node.open)) == ([], [], 0)


async def test_c103_a_claim_whose_reply_was_lost_is_undone(node: Node) -> None:
    async def lose(_id: str) -> None:
        raise StoreUnavailableError("nobody knows")

    node.store.after_claim = lose
    held = await node.hold()
    with pytest.raises(StoreUnavailableError):
        await node.claim(held)
    assert await node.state_of(held) is S.HELD
    assert (node.outlet.sent, len(node.open)) == ([], 0)


async def test_c104_in_another_start_of_the_store_nothing_is_sent_before_it_was_told(node: Node) -> None:
    await node.claims.look()
    node.store.restarted = True
    held = await node.hold()
    with pytest.raises(StoreUnavailableError):
        await node.claim(held)
    assert await node.state_of(held) is S.HELD
    assert (node.outlet.sent, len(node.open), node.claims.ready) == ([], 0, False)


async def test_c104_what_was_sent_is_kept_and_what_was_undone_is_not(node: Node) -> None:
    sent = await node.hold()
    assert await node.claim(sent) is S.PENDING
    assert node.claims.fills()["kept_claims"].size == 1
    node.outlet.refuses = BrokerUnavailableError("no connection")
    assert await node.claim(await node.hold()) is S.HELD
    assert node.claims.fills()["kept_claims"].size == 1


async def test_c111_what_the_connection_does_not_take_is_held_again(node: Node) -> None:
    held = await node.hold()
    node.outlet.refuses = BrokerUnavailableError("no connection")
    assert await node.claim(held) is S.HELD
    assert (node.again, len(node.open)) == ([held.command_id], 0)
    node.outlet.refuses = None
    assert await node.claim(held) is S.PENDING
    assert await node.puback(held, BrokerUnavailableError("it was withdrawn from the window")) is S.HELD
    assert node.counters["held.given_back.not_handed_over"] == 2


async def test_c111_where_the_broker_is_believed_nobody_subscribed_is_proof(node: Node) -> None:
    held = await node.hold()
    await node.claim(held)
    assert await node.puback(held, Receipt.UNMATCHED) is S.HELD
    node.outlet.believed = False
    await node.claim(held)
    assert await node.puback(held, Receipt.UNMATCHED) is S.PENDING
    assert node.counters["held.given_back.no_subscriber"] == 1


async def test_c111_silence_of_the_broker_is_no_proof(node: Node) -> None:
    held = await node.hold()
    await node.claim(held)
    assert await node.puback(held, PublishUnconfirmedError("the connection was lost")) is S.PENDING
    assert (node.again, len(node.open)) == ([], 1)


async def test_c111_whoever_answers_while_a_claim_is_undone_has_it(node: Node) -> None:
    held = await node.hold()
    await node.claim(held)
    node.outlet.pubacks[-1].set_result(Receipt.UNMATCHED)
    await node.store.respond(answer(held), "node-b")
    await asyncio.sleep(0)
    assert await node.state_of(held) is S.SUCCEEDED
    assert node.again == []
