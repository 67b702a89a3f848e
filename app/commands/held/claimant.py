"""Claims held commands for this node and sends them: of several nodes that claim one, the store lets one win.

A claim is undone only on proof that nobody has the command: it was not handed over, or the broker said that nobody was
subscribed (docs/adr/0110). All else ends at its deadline, which begins with the claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

import structlog

from app.callbacks.observer import Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.pending import Pending
from app.commands.deadlines.expirer import Expirer
from app.commands.held.claim_keeper import ClaimKeeper
from app.commands.held.lane_turns import LaneTurns
from app.commands.send.publisher import Publisher
from app.commands.send.unsent import no_subscriber, not_sent
from app.core.clock import Clock
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.errors import (
    BrokerUnavailableError,
    CapacityError,
    HomingError,
    PublishUnconfirmedError,
    StoreUnavailableError,
    UnavailableError,
)
from app.core.messages import Receipt
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Counters
from app.store.holds import Claimed, HoldStore, Waits

CLAIM_SECONDS: Final = 1.0
"""A claimed command is sent within so many seconds, or given back: later the claimant may not be what it was."""
AGAIN_SECONDS: Final = 0.5


class Claimant:
    """`serves` tells whether this node holds its lease."""

    def __init__(
        self,
        *,
        store: HoldStore,
        claims: ClaimKeeper,
        publisher: Publisher,
        open_commands: OpenCommands,
        expirer: Expirer,
        serves: Callable[[], bool],
        clock: Clock,
        counters: Counters,
        observers: Observers,
    ) -> None:
        self.held_again: Final[Listeners[str, str]] = Listeners()
        """Called with the device and the id of a command whose claim was undone."""
        self._claims = claims
        self._publisher = publisher
        self._open_commands = open_commands
        self._expirer = expirer
        self._serves = serves
        self._now = clock.monotonic
        self._counters = counters
        self._observers = observers
        self._turns = LaneTurns(store, publisher, observers)
        self._tasks: set[asyncio.Task[object]] = set()
        self._log = structlog.get_logger()

    async def refuse(self, command: Command, error: bytes) -> None:
        """Cancel a held command whose caller may not send it any more; UnavailableError, and then it is judged again.

        It is not ended later by itself: another node may send it meanwhile, whose caller has the right again, or which
        does not know yet that they have lost it. What was claimed so is left alone, as it may be with its device.
        """
        outcome = await self._expirer.end(command.id, CommandState.CANCELLED, error, only_held=True)
        if outcome is not None:
            self._counters["held.refused"] += 1

    async def drained(self) -> None:
        """Return when all that was begun is done."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self._turns.drained()

    async def claim(self, command: Command) -> Waits | None:
        """Claim a held command, and send it in the same turn as the store's reply, unless another node has it.

        Return what it waits for, if nobody may send it yet. StoreUnavailableError, also while the store may have
        forgotten what was claimed.
        CapacityError while the node has too many open commands, or another one keeps the command from its topic.
        """
        token, asked_at = self._claims.new_token(), self._now()
        pending = self._open_commands.open(command.id)
        try:
            claimed = await self._claims.claim(command.id, token)
        except BaseException as error:
            self._open_commands.discard(command.id)
            if isinstance(error, StoreUnavailableError) and error.asked:  # it may have happened, and nothing is sent
                self._later(self._give_back(command, token, None))
            raise
        if not isinstance(claimed, Claimed):  # it waits, or another node was first, or it has ended
            self._open_commands.discard(command.id)
            return claimed
        if command.id in self._open_commands:  # else somebody has ended it before the store's reply was here
            self._open_commands.registered(pending, claimed.command)
            self._send(claimed, pending, token, asked_at)
        return None

    def _send(self, claimed: Claimed, pending: Pending, token: str, asked_at: float) -> None:
        """Act in the same turn of the loop as the reply: nothing comes between the claim and what is done on it."""
        command = claimed.command
        timeout = timedelta() if command.hold is None else command.hold.timeout
        left = timeout - timedelta(seconds=self._now() - asked_at)
        self._expirer.keep(command.id, timeout)
        if self._now() - asked_at > CLAIM_SECONDS or left <= timedelta() or not self._serves():
            self._counters["held.given_back.late"] += 1
            self._later(self._give_back(command, token, pending))
            return
        try:
            publication, puback = self._publisher.publish(command, left=left, trace=claimed.trace)
        except (BrokerUnavailableError, CapacityError):
            self._counters["held.given_back.not_handed_over"] += 1
            self._later(self._give_back(command, token, pending))
        except HomingError as error:
            for tell in self._observers.unsent:
                tell(command.id, error)
            self._later(self._expirer.end(command.id, CommandState.UNSENT, not_sent(error)))
        else:
            self._counters["held.sent"] += 1
            self._open_commands.published(pending, len(publication.payload), puback)
            puback.add_done_callback(partial(self._after_puback, command, token, pending, publication.topic))

    def _after_puback(
        self, command: Command, token: str, pending: Pending, topic: str, puback: asyncio.Future[Receipt]
    ) -> None:
        if puback.cancelled():  # the command is closed
            return
        match puback.exception():
            case None if puback.result() is Receipt.UNMATCHED and self._believes(command):
                for tell_unmatched in self._observers.unmatched:
                    tell_unmatched(command.id)
                self._after_no_subscriber(command, token, pending, topic)
            case None:
                self._open_commands.acknowledged(pending)
                if command.one_way:
                    self._later(self._expirer.end(command.id, CommandState.SUCCEEDED))
            case PublishUnconfirmedError():
                # It may have arrived, so it is not sent again: the deadline decides.
                for tell in self._observers.unconfirmed:
                    tell(command.id)
            case BrokerUnavailableError():
                self._counters["held.given_back.not_handed_over"] += 1
                self._later(self._give_back(command, token, pending))
            case error:
                for tell_unsent in self._observers.unsent:
                    tell_unsent(command.id, error)
                self._later(self._expirer.end(command.id, CommandState.UNSENT, not_sent(error)))

    def _after_no_subscriber(self, command: Command, token: str, pending: Pending, topic: str) -> None:
        """Nobody got it, and what becomes of it is as its caller chose."""
        if command.if_offline is IfOffline.HOLD:
            self._counters["held.given_back.no_subscriber"] += 1
            self._later(self._give_back(command, token, pending))
        elif command.if_offline is IfOffline.FAIL or command.one_way:
            error = no_subscriber(topic, command.profile)
            self._later(self._expirer.end(command.id, CommandState.UNSENT, error))
        else:
            self._open_commands.acknowledged(pending)

    def _believes(self, command: Command) -> bool:
        self._publisher.absence.told(command.profile)
        return self._publisher.absence.tells(command.profile)

    async def _give_back(self, command: Command, token: str, pending: Pending | None) -> None:
        """Undo a claim, as nobody has the command. Tried until the deadline that began with the claim."""
        ends = self._now() + (0 if command.hold is None else command.hold.timeout.total_seconds())
        while True:
            try:
                held = await self._claims.give_back(command.id, token)
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("claim_not_given_back", command_id=command.id, reason=str(failure))
                if self._now() >= ends:
                    return
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            break
        if held and pending is not None and self._open_commands.get(command.id) is pending:
            pending.puback = None
            self._open_commands.discard(command.id)
        if held:
            self.held_again(command.device_id, command.id)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
