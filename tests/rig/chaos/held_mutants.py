"""Mistakes of nodes that hold commands and drive fleet runs; `mutants.py` has the table of all."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from tests.rig.planting import change, product_class


def sends_what_another_has_claimed() -> None:
    """A held command is sent as well by a node that did not win it."""
    claimant = product_class("app.commands.held.claimant.Claimant")
    claim = claimant.claim

    async def careless(self: Any, command: Any) -> Any:
        waits = await claim(self, command)
        if waits is None and command.id not in self._open_commands:
            self._publisher.publish(command, left=command.hold.timeout, trace=None)
        return waits

    claimant.claim = careless


def forgets_what_it_claims() -> None:
    """A node tells a store that may have forgotten its last second nothing of what it has claimed."""
    keeper = product_class("app.commands.held.claim_keeper.ClaimKeeper")
    claim = keeper.claim

    async def forgetful(self: Any, command_id: str, token: str) -> Any:
        claimed = await claim(self, command_id, token)
        self._kept.clear()
        return claimed

    keeper.claim = forgetful


def sends_however_old_the_claim() -> None:
    """A node acts on the store's reply to a claim as if it had asked just now, and held its lease."""
    claimant = product_class("app.commands.held.claimant.Claimant")
    send = claimant._send

    def late(self: Any, claimed: Any, pending: Any, token: str, _asked_at: float) -> None:
        self._serves = lambda: True
        send(self, claimed, pending, token, self._now())

    claimant._send = late


def lanes_let_all_go() -> None:
    """A command is sent although its lane has another one in flight."""
    change("commands/claim", "local closed = closed_until(lane, now)", "local closed = nil")


def children_of_each_driver() -> None:
    """The ids of a run's commands do not follow from the run alone: each process that drives it has others."""
    vars(import_module("app.fleets.plan"))["ATTEMPT"] = os.getpid()


def runs_stay_with_their_driver() -> None:
    """Nobody takes a run that another node has driven, whether or not that one can."""
    drivers = product_class("app.fleets.drivers.FleetDrivers")
    take = drivers._take

    async def faithful(self: Any, run_id: str) -> None:
        record = await self._store.read(run_id)
        if record is not None and record.status["driver"] in ("", self._holder.partition(" ")[0]):
            await take(self, run_id)

    drivers._take = faithful
