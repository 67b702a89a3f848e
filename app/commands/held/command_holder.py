"""Holds commands: registers them to wait for their device, and has them tried at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from app.callbacks.observer import Observers
from app.callbacks.waiters import Waiters
from app.commands.deadlines.expirer import Expirer
from app.commands.held.drainer import Drainer
from app.commands.send.admission import CommandAdmission
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest, Registrar
from app.commands.send.unsent import may_be_on_record, name_command, not_sent
from app.core.access.callers import Caller
from app.core.access.places import ConcurrencyPermit
from app.core.clock import Clock
from app.core.errors import InvalidInputError, NotYetError
from app.core.profiles.profile import DeviceProfile
from app.store.commands import CommandWriter, Joined

FEATURE: Final = "held"
"""The word by which nodes tell that they know held commands."""
APPROVALS: Final = "approvals"
"""The word by which nodes tell that they know commands that a second person has to approve."""


class CommandHolder:
    """Takes commands of callers on this node that may wait. `all_know` tells whether all live nodes know a feature."""

    def __init__(
        self,
        *,
        store: CommandWriter,
        registrar: Registrar,
        admission: CommandAdmission,
        waiters: Waiters,
        drainer: Drainer,
        expirer: Expirer,
        all_know: Callable[[str], Awaitable[bool]],
        observers: Observers,
        clock: Clock,
    ) -> None:
        self._store = store
        self._registrar = registrar
        self._admission = admission
        self._waiters = waiters
        self._drainer = drainer
        self._expirer = expirer
        self._all_know = all_know
        self._observers = observers
        self._clock = clock

    def approval_of(self, request: CommandRequest) -> timedelta | None:
        """The time in which the profile wants a second person to approve a command; None if it wants none."""
        return self._admission.approval_of(request)

    async def check_known(self, feature: str = FEATURE) -> None:
        """Return when all live nodes know held commands, or another feature of them; NotYetError."""
        if not await self._all_know(feature):
            raise NotYetError(f"a node of the cluster does not know {_NAMES[feature]}: it runs an earlier version")

    def check(self, request: CommandRequest) -> None:
        """Return when such a command could be held; InvalidInputError says what is wrong with it."""
        profile = self._admission.profile_of(request)
        _check(request, profile)
        self._registrar.registration(request, profile, request.timeout)

    async def invoke(
        self,
        request: CommandRequest,
        caller: Caller | None,
        *,
        park: bool,
        place: ConcurrencyPermit | None = None,
    ) -> Invocation:
        """Register a command that waits; with `park`, keep a place for the caller. It is tried at once.

        Interlocks are judged when it is claimed, as the values of a device that is away are old. Raises
        StoreUnavailableError, NotYetError, CapacityError, TooManyHeldError, IdempotencyMismatchError and
        InvalidInputError.
        """
        del place  # a command that waits is not among those that are open
        profile = self._admission.profile_of(request)
        _check(request, profile)
        await self.check_known(FEATURE if request.approval is None else APPROVALS)
        opened_at = self._clock.monotonic()
        registration = self._registrar.registration(request, profile, request.timeout, caller)
        identity = registration.command_id
        waiter = self._waiters.park(identity) if park else None
        try:
            registered = await self._store.register(registration)
        except BaseException as error:
            if waiter is not None:
                self._waiters.leave(identity, waiter)
            for tell in self._observers.refused:
                tell(registration, opened_at, error)
            name_command(identity, error)
            if may_be_on_record(error) and not request.is_found_again:  # else whoever repeats the call gets it
                self._expirer.disown(identity, not_sent(error))
            raise
        if isinstance(registered, Joined):
            if waiter is not None:
                self._waiters.leave(identity, waiter)
            for tell_joined in self._observers.joined:
                tell_joined(registration, opened_at)
            known = registered.command
            joined = self._waiters.park(known.id) if park and not known.state.final else None
            return Invocation(known, self._waiters, joined, _never)
        for tell_registered in self._observers.registered:
            tell_registered(registration, opened_at)
        self._drainer.begin(request.device_id, identity)
        command = registration.command(registered.created_at, registered.deadline, held=registered.held)
        return Invocation(command, self._waiters, waiter)


_NAMES: Final = {FEATURE: "held commands", APPROVALS: "approvals of a second person"}


async def _never() -> Invocation | None:
    """Try nothing again: a hold that has ended is over."""
    return None


def _check(request: CommandRequest, profile: DeviceProfile) -> None:
    if request.one_way and not profile.qos_of(request.method):
        raise InvalidInputError(
            "hold",
            f"needs a PUBACK or an answer, and {request.method} of profile {profile.name!r} has neither as a one-way "
            "command: it is published with QoS 0",
        )
