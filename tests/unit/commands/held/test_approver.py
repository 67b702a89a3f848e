"""A node looks at a held command once for a second person, until the store may have forgotten what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from app.commands.held.approver import Approver
from app.core.commands.command import Command
from app.runtime.listeners import Listeners
from app.store.holds import HeldEntries, HeldEntry


class HeldOnes:
    """A store with held commands, of which some wait for a second person. It counts how often each was read."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.waiting: set[str] = set()
        self.read: list[str] = []

    async def held(self) -> HeldEntries:
        return HeldEntries([HeldEntry("device", one, number) for number, one in enumerate(self.ids)])

    async def get(self, ids: Sequence[str]) -> list[Command | None]:
        self.read += ids
        return [cast("Any", SimpleNamespace(id=one, awaits_approval=one in self.waiting)) for one in ids]


class Approving:
    """The approver of a node on such a store; `settled` is called when the store was told what it had forgotten."""

    def __init__(self, *ids: str) -> None:
        self.store, self.settled = HeldOnes(*ids), Listeners[[]]()
        nothing = cast("Any", None)
        self.approver = Approver(
            store=cast("Any", self.store),
            commands=cast("Any", self.store),
            open_commands=nothing,
            drainer=nothing,
            claims=cast("Any", SimpleNamespace(settled=self.settled)),
            node_id="node-a",
            counters=Counter(),
        )

    async def waiting(self) -> list[str]:
        return [one.id async for one in self.approver.waiting() if one is not None]


async def test_a_command_that_waits_for_nobody_is_read_once() -> None:
    node = Approving("one", "two")
    node.store.waiting = {"two"}
    assert await node.waiting() == await node.waiting() == ["two"]
    assert node.store.read == ["one", "two", "two"]


async def test_after_the_store_may_have_forgotten_a_decision_each_is_read_again() -> None:
    node = Approving("one")
    assert await node.waiting() == []
    node.store.waiting = {"one"}
    assert await node.waiting() == []
    node.settled()
    assert await node.waiting() == ["one"]


async def test_a_reading_that_began_before_the_store_forgot_hides_nothing_from_later_ones() -> None:
    node = Approving("one", "two")
    node.store.waiting = {"one"}
    reading = node.approver.waiting()
    assert (await anext(reading)) is not None
    node.settled()
    assert [one async for one in reading] == [], "it has read that the second one waits for nobody"
    node.store.waiting = {"two"}
    assert await node.waiting() == ["two"]
