"""Sends commands: register, publish, await. The order of these steps is the whole trick."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

from app.callbacks.echoes import Echoes
from app.callbacks.observer import Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.pending import Pending
from app.callbacks.waiters import Waiter, Waiters
from app.commands.deadlines.expirer import Expirer
from app.commands.send.admission import Admitted, CommandAdmission
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import CommandRequest, Registrar
from app.commands.send.unsent import (
    device_offline,
    may_be_on_record,
    may_be_sent_again,
    name_command,
    no_subscriber,
    not_sent,
    with_outcome,
)
from app.core.access.callers import Caller
from app.core.access.places import ConcurrencyPermit
from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.commands.faults import fault
from app.core.commands.routing import Follower
from app.core.errors import (
    CapacityError,
    HomingError,
    InvalidInputError,
    PublishUnconfirmedError,
    UnpublishableError,
)
from app.core.messages import Receipt
from app.core.payload import JsonValue
from app.mqtt.base import Puback
from app.runtime.listeners import Listeners
from app.store.commands import CommandWriter, Finished, Joined

Again = Callable[[], Awaitable["Invocation | None"]]
"""Tries to send what was joined and turned out to be unsent; None when the caller's time is over."""


class Invocation:
    """A command on its way, with a place for its caller to wait.

    Leave it with `leave` when done; a caller that stops waiting does not stop the command.
    """

    __slots__ = ("_again", "_waiter", "_waiters", "command")

    def __init__(self, command: Command, waiters: Waiters, waiter: Waiter | None, again: Again | None = None) -> None:
        """`again` is for a command that an earlier call with the same idempotency key began."""
        self.command = command
        """The command as it stood when it was sent or joined."""
        self._waiters = waiters
        self._waiter = waiter
        self._again = again

    @property
    def replayed(self) -> bool:
        """True if an earlier call with the same idempotency key began it."""
        return self._again is not None

    async def wait(self, budget: timedelta) -> Command:
        """The command with its outcome, or as it is known here when the budget ends first.

        A joined command that turns out to be unsent is sent after all, under another id, as its key is free then.
        Raises what `Invoker.invoke` raises when that fails.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + budget.total_seconds()
        command = await self._wait(budget)
        while self._again is not None and may_be_sent_again(command):
            next_one = await self._again()
            if next_one is None:
                break
            self._take_the_place_of(next_one)
            command = await self._wait(timedelta(seconds=ends - loop.time()))
        return command

    def _take_the_place_of(self, other: Invocation) -> None:
        self.command, self._waiter, self._again = other.command, other._waiter, other._again

    async def _wait(self, budget: timedelta) -> Command:
        if self._waiter is None or self.command.state.final:
            return self.command
        future = self._waiter.future
        timer = future.get_loop().call_later(budget.total_seconds(), self._waiter.give_up)
        try:
            outcome = await future
        except BaseException:
            self.leave()
            raise
        finally:
            timer.cancel()
        if outcome is None:
            self.leave()
        else:
            self._waiters.delivered(self._waiter)
            self.command = with_outcome(self.command, outcome)
        return self.command

    def leave(self) -> None:
        """Give up the place; the command goes on."""
        if self._waiter is not None:
            self._waiters.leave(self.command.id, self._waiter)


class Invoker:
    """Sends commands for callers on this node."""

    def __init__(
        self,
        *,
        store: CommandWriter,
        echoes: Echoes,
        publisher: Publisher,
        open_commands: OpenCommands,
        waiters: Waiters,
        admission: CommandAdmission,
        registrar: Registrar,
        node_id: str,
        expirer: Expirer,
        observers: Observers,
    ) -> None:
        self._store = store
        self._echoes = echoes
        self._publisher = publisher
        self._open_commands = open_commands
        self._waiters = waiters
        self._admission = admission
        self._registrar = registrar
        self._node_id = node_id
        self._expirer = expirer
        self._observers = observers
        self.cancelled: Final[Listeners[str]] = Listeners()
        """Called with the id of a command that this node has cancelled for somebody."""
        self._following: set[asyncio.Task[object]] = set()
        publisher.handed_over.add(self._handed_over)

    async def invoke(
        self,
        request: CommandRequest,
        caller: Caller | None = None,
        *,
        park: bool,
        place: ConcurrencyPermit | None = None,
    ) -> Invocation:
        """Register and publish; with `park`, keep a place for the caller from before anything was sent.

        `place` is what the command takes of its caller's limits while it is open. A command whose lane has no room is
        registered to wait there, and is published later.

        Raises CapacityError, StoreUnavailableError, BrokerUnavailableError and UnpublishableError (then the command, if
        it was registered, is on record as unsent), IdempotencyMismatchError, DeviceBusyError, TooManyHeldError,
        InterlockError and InterlockBlindError.
        """
        return await self._invoke(request, request.timeout, caller, park=park, place=place)

    async def _invoke(
        self,
        request: CommandRequest,
        timeout: timedelta,
        caller: Caller | None,
        *,
        park: bool,
        place: ConcurrencyPermit | None,
    ) -> Invocation:
        """`timeout` is what is left of the request's."""
        admitted = await self._admission.admit(request)
        self._publisher.check_connected()
        self._check_room(park=park)  # first, as a node that has none is asked most
        registration = self._registrar.registration(request, admitted.profile, timeout, caller)
        identity = registration.command_id
        pending, waiter = self._open(identity, park=park, place=place)
        try:
            registered = await self._store.register(registration)
        except BaseException as error:
            self._forget(identity, waiter)
            for tell in self._observers.refused:
                tell(registration, pending.opened_at, error)
            if may_be_on_record(error):
                self._give_up(request, registration, not_sent(error))
            name_command(identity, error)
            raise
        if isinstance(registered, Joined):
            self._forget(identity, waiter)
            for tell_joined in self._observers.joined:
                tell_joined(registration, pending.opened_at)
            return self._join(registered.command, request, timeout, caller, park=park, place=place)
        for tell_registered in self._observers.registered:
            tell_registered(registration, pending.opened_at)
        command = registration.command(registered.created_at, registered.deadline, held=registered.held)
        if registered.held:
            self._open_commands.discard(identity)  # until it is claimed
            for tell_next in self._observers.next_in_lane:
                tell_next(Follower(identity, request.device_id))
        elif identity in self._open_commands:  # else somebody has ended it before the store's reply was here
            self._open_commands.registered(pending, command)
            self._expirer.keep(identity, timeout)
            await self._send(command, request, admitted, pending, waiter, registration.trace)
        return Invocation(command, self._waiters, waiter)

    async def _send(
        self,
        command: Command,
        request: CommandRequest,
        admitted: Admitted,
        pending: Pending,
        waiter: Waiter | None,
        trace: str | None,
    ) -> None:
        identity = command.id
        try:
            admitted.check()  # its key may have become free meanwhile
            asks_first = self._publisher.absence.asks_first(request.if_offline)
            if not asks_first or await self._is_there(command):
                self._publish(command, request.params, pending, trace)
        except BaseException as error:
            self._forget(identity, waiter)
            self._tell_unsent(identity, error)
            outcome = await self._expirer.end(identity, CommandState.UNSENT, not_sent(error))
            name_command(identity, error, command if outcome is None else with_outcome(command, outcome))
            raise

    def _give_up(self, request: CommandRequest, registration: Registration, why: bytes) -> None:
        """End a command that may be on record, as nobody is going to send it."""
        self._later(self._expirer.end(registration.command_id, CommandState.UNSENT, why))
        if registration.hold is not None and not request.is_found_again:  # it may yet stand in its lane
            self._expirer.disown(registration.command_id, why)

    async def _is_there(self, command: Command) -> bool:
        """True if to send a command that is not to wait for a device that is away; ends it if not.

        Of other commands the broker alone tells, which costs nothing.
        """
        since = await self._publisher.absence.offline_since(command.device_id)
        if since is not None:
            self._later(self._expirer.end(command.id, CommandState.UNSENT, device_offline(command.device_id, since)))
        return since is None and command.id in self._open_commands

    async def cancel(self, identity: str, *, only_held: bool = False) -> Finished:
        """Cancel an open command; `won` is false when it had an outcome already.

        With `only_held`, IllegalTransitionError where it is not held any more.
        """
        finished = await self._store.finish(
            identity, CommandState.CANCELLED, self._node_id, CANCELLED, only_held=only_held
        )
        if finished.won:
            self.cancelled(identity)
            self._open_commands.ended(finished.outcome)
        else:
            self._open_commands.complete(finished.outcome)
        return finished

    async def drained(self) -> None:
        """Return when all follow-up work so far is done."""
        await asyncio.sleep(0)  # a publish that has just ended says so in the next turn of the loop
        while self._following:
            await asyncio.wait(tuple(self._following))

    def _check_room(self, *, park: bool) -> None:
        self._open_commands.check_room()
        if park:
            self._waiters.check_room()

    def _open(self, identity: str, *, park: bool, place: ConcurrencyPermit | None) -> tuple[Pending, Waiter | None]:
        """Everything that waits for an answer is in place before anything is sent; CapacityError without room."""
        pending = self._open_commands.open(identity, place)
        try:
            return pending, self._waiters.park(identity) if park else None
        except CapacityError:
            self._open_commands.discard(identity)
            raise

    def _join(
        self,
        command: Command,
        request: CommandRequest,
        timeout: timedelta,
        caller: Caller | None,
        *,
        park: bool,
        place: ConcurrencyPermit | None,
    ) -> Invocation:
        if (pending := self._open_commands.get(command.id)) is not None:
            pending.attempt += 1
        waiter = self._waiters.park(command.id) if park and not command.state.final else None
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout.total_seconds()

        async def again() -> Invocation | None:
            left = timedelta(seconds=ends - loop.time())
            return await self._invoke(request, left, caller, park=park, place=place) if left > SHORTEST else None

        return Invocation(command, self._waiters, waiter, again)

    def _publish(self, command: Command, params: JsonValue, pending: Pending, trace: str | None) -> None:
        try:
            publication, puback = self._publisher.publish(command, params=params, trace=trace)
        except UnpublishableError:
            raise
        except InvalidInputError as error:  # a value of the command that no topic name can hold
            raise UnpublishableError(error.field, error.reason) from error
        puback.add_done_callback(partial(self._after_puback, pending, publication.topic))
        self._open_commands.published(pending, len(publication.payload), puback)

    def _handed_over(self, command: Command, puback: Puback) -> None:
        """Hear of each command that leaves, also of one that was held."""
        if self._echoes.may_be_before(command):
            self._later(self._end_when_nothing_is_to_do(command, puback))

    def _after_puback(self, pending: Pending, topic: str, puback: asyncio.Future[Receipt]) -> None:
        if puback.cancelled():  # the command is closed
            return
        identity = pending.command_id
        match puback.exception():
            case None if puback.result() is Receipt.UNMATCHED:
                self._after_no_subscriber(pending, topic)
            case None:
                self._open_commands.acknowledged(pending)
                if pending.one_way:
                    self._later(self._expirer.end(identity, CommandState.SUCCEEDED))
            case PublishUnconfirmedError():
                # It may have arrived, so it is neither sent again nor called unsent: the deadline decides.
                for tell in self._observers.unconfirmed:
                    tell(identity)
            case error:
                self._tell_unsent(identity, error)
                self._later(self._expirer.end(identity, CommandState.UNSENT, not_sent(error)))

    async def _end_when_nothing_is_to_do(self, command: Command, puback: asyncio.Future[Receipt]) -> None:
        """A device whose state is as wanted may say nothing: what it told before is the answer, once this was sent."""
        try:
            receipt = await asyncio.shield(puback)
        except (asyncio.CancelledError, HomingError):
            return
        answer = None if receipt is Receipt.UNMATCHED else await self._echoes.before(command)
        if answer is None or command.id not in self._open_commands:
            return
        recorded = await self._store.respond(answer, self._node_id)
        if recorded.outcome is not None:
            self._open_commands.complete(recorded.outcome)

    def _after_no_subscriber(self, pending: Pending, topic: str) -> None:
        """Nobody got it. A device that the broker does not count may have it nevertheless: its answer comes first."""
        self._publisher.absence.told(pending.profile)
        for tell in self._observers.unmatched:
            tell(pending.command_id)
        if pending.one_way or pending.if_offline is IfOffline.FAIL:
            error = no_subscriber(topic, pending.profile)
            self._later(self._expirer.end(pending.command_id, CommandState.UNSENT, error))
        else:
            self._open_commands.acknowledged(pending)

    def _tell_unsent(self, identity: str, error: BaseException) -> None:
        for tell in self._observers.unsent:
            tell(identity, error)

    def _forget(self, identity: str, waiter: Waiter | None) -> None:
        self._open_commands.discard(identity)
        if waiter is not None:
            self._waiters.leave(identity, waiter)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)


SHORTEST: Final = timedelta(milliseconds=1)
"""The shortest timeout that a command may have."""
CANCELLED = fault("cancelled", "a caller cancelled the command")
