"""Sends commands: register, publish, await. The order of these steps is the whole trick (design §5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from app.callbacks.registry import Registry, Waiter
from app.commands.expirer import Expirer
from app.core.callback import Registration
from app.core.clock import IdFactory
from app.core.command import Command, CommandState
from app.core.errors import (
    BrokerUnavailableError,
    HomingError,
    InvalidInputError,
    PublishUnconfirmedError,
    StoreUnavailableError,
    UnavailableError,
)
from app.core.identifiers import command_id
from app.core.payload import JsonValue
from app.core.profile import DeviceProfile, to_json
from app.core.routing import Outcome
from app.core.templating import CommandFacts
from app.mqtt.base import MqttClient
from app.observability import Counters
from app.store.base import Finished, Joined, StateStore


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """What a caller asks for, validated."""

    device_id: str
    method: str
    params: JsonValue
    timeout: timedelta
    profile: str
    one_way: bool = False
    idempotency_key: str | None = None
    timeout_given: bool = True
    """Whether the caller gave it. The node's own choice is no part of the body: another node may choose otherwise."""


class Invocation:
    """A command on its way, with a place for its caller to wait.

    Leave it with `leave` when done; a caller that stops waiting does not stop the command.
    """

    __slots__ = ("_registry", "_waiter", "command", "replayed")

    def __init__(self, command: Command, registry: Registry, waiter: Waiter | None, *, replayed: bool) -> None:
        self.command = command
        """As it stood when it was sent or joined."""
        self.replayed = replayed
        """Whether an earlier call with the same idempotency key began it."""
        self._registry = registry
        self._waiter = waiter

    async def wait(self, budget: timedelta) -> Command:
        """The command with its outcome, or as it is known here when the budget ends first."""
        if self._waiter is None or self.command.state.final:
            return self.command
        future = self._waiter.future
        timer = future.get_loop().call_later(budget.total_seconds(), self._waiter.give_up)
        try:
            outcome = await future
            self._registry.delivered(self._waiter)
        finally:
            timer.cancel()
            self.leave()
        if outcome is not None:
            self.command = with_outcome(self.command, outcome)
        return self.command

    def leave(self) -> None:
        """Give up the place; the command goes on."""
        if self._waiter is not None:
            self._registry.leave(self.command.id, self._waiter)


class Invoker:
    """Sends commands for callers on this node."""

    def __init__(
        self,
        *,
        store: StateStore,
        mqtt: MqttClient,
        registry: Registry,
        profiles: Mapping[str, DeviceProfile],
        new_ulid: IdFactory,
        node_id: str,
        retention: timedelta,
        expirer: Expirer,
        counters: Counters,
        trace: Callable[[], str | None] | None = None,
    ) -> None:
        """`trace` tells the context of the trace that is current, where there is tracing."""
        self._store = store
        self._mqtt = mqtt
        self._registry = registry
        self._profiles = profiles
        self._new_ulid = new_ulid
        self._node_id = node_id
        self._retention = retention
        self._expirer = expirer
        self._counters = counters
        self._trace = trace
        self._following: set[asyncio.Task[object]] = set()

    async def invoke(self, request: CommandRequest, *, park: bool) -> Invocation:
        """Register and publish; with `park`, keep a place for the caller from before anything was sent.

        Raises CapacityError, StoreUnavailableError, BrokerUnavailableError (then the command, if it was registered, is
        on record as unsent), IdempotencyMismatchError, DeviceBusyError.
        """
        profile = self._profile(request.profile)
        if not self._mqtt.connected:
            raise BrokerUnavailableError("this node has no connection to the MQTT broker")
        registration = self._registration(request, profile)
        identity = registration.command_id
        self._registry.open(identity)
        waiter: Waiter | None = None
        try:
            waiter = self._registry.park(identity) if park else None
            registered = await self._store.register(registration)
        except BaseException as error:
            self._forget(identity, waiter)
            if not isinstance(error, HomingError) or isinstance(error, StoreUnavailableError):
                # It may be on record, and nobody is going to send it (F3).
                self._later(self._expirer.end(identity, CommandState.UNSENT, _not_sent(error)))
            _name(identity, error)
            raise
        if isinstance(registered, Joined):
            self._forget(identity, waiter)
            return self._join(registered.command, park=park)
        command = registration.command(registered.created_at, registered.deadline)
        self._registry.registered(command)
        self._expirer.keep(identity, request.timeout)
        try:
            self._publish(profile, request, command)
        except BaseException as error:
            self._forget(identity, waiter)
            self._counters["publish.refused"] += 1
            await self._expirer.end(identity, CommandState.UNSENT, _not_sent(error))
            _name(identity, error)
            raise
        return Invocation(command, self._registry, waiter, replayed=False)

    async def cancel(self, identity: str) -> Finished:
        """Cancel an open command; `won` is false when it had an outcome already."""
        finished = await self._store.finish(identity, CommandState.CANCELLED, self._node_id, CANCELLED)
        if finished.won:
            self._registry.ended(finished.outcome)
        else:
            self._registry.complete(finished.outcome)
        return finished

    async def drained(self) -> None:
        """Return when all follow-up work so far is done."""
        while self._following:
            await asyncio.wait(tuple(self._following))

    def _profile(self, name: str) -> DeviceProfile:
        profile = self._profiles.get(name)
        if profile is None:
            raise InvalidInputError(
                "profile", f"{name[:64]!a} is unknown; allowed: {', '.join(sorted(self._profiles))}"
            )
        return profile

    def _registration(self, request: CommandRequest, profile: DeviceProfile) -> Registration:
        identity = command_id(request.device_id, self._new_ulid())
        facts = CommandFacts(identity, request.device_id, request.method, request.params, 0, 0)
        return Registration(
            command_id=identity,
            device_id=request.device_id,
            method=request.method,
            params=to_json(request.params),
            profile=profile.name,
            home_node=self._node_id,
            expectations=() if request.one_way else profile.expectations(facts),
            timeout=request.timeout,
            retention=self._retention,
            quarantine=profile.quarantine,
            idempotency_key=request.idempotency_key,
            fingerprint=_fingerprint(request) if request.idempotency_key is not None else "",
        )

    def _join(self, command: Command, *, park: bool) -> Invocation:
        self._counters["command.joined"] += 1
        self._registry.joined(command.id)
        waiter = self._registry.park(command.id) if park and not command.state.final else None
        return Invocation(command, self._registry, waiter, replayed=True)

    def _publish(self, profile: DeviceProfile, request: CommandRequest, command: Command) -> None:
        facts = CommandFacts(
            command.id, command.device_id, command.method, request.params, command.created_at, command.deadline
        )
        identity, one_way = command.id, request.one_way

        def settled(puback: asyncio.Future[None]) -> None:
            self._after_puback(identity, puback, one_way=one_way)

        publication = profile.compose(facts, None if self._trace is None else self._trace())
        self._mqtt.publish(publication).add_done_callback(settled)
        self._registry.published(identity, len(publication.payload))

    def _after_puback(self, identity: str, puback: asyncio.Future[None], *, one_way: bool) -> None:
        if puback.cancelled():
            return
        match puback.exception():
            case None:
                self._registry.acknowledged(identity)
                if one_way:
                    self._later(self._expirer.end(identity, CommandState.SUCCEEDED))
            case PublishUnconfirmedError():
                # It may have arrived, so it is neither sent again nor called unsent: the deadline decides.
                self._counters["publish.unconfirmed"] += 1
            case error:
                self._counters["publish.refused"] += 1
                self._later(self._expirer.end(identity, CommandState.UNSENT, _not_sent(error)))

    def _forget(self, identity: str, waiter: Waiter | None) -> None:
        self._registry.discard(identity)
        if waiter is not None:
            self._registry.leave(identity, waiter)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)


CANCELLED = to_json({"code": "cancelled", "message": "a caller cancelled the command"})


def _name(identity: str, error: BaseException) -> None:
    """Tell the caller which command to look for."""
    if isinstance(error, UnavailableError):
        error.command_id = identity


def _not_sent(error: BaseException) -> bytes:
    reason = str(error) if isinstance(error, HomingError) else "the node failed before it was sent"
    return to_json({"code": "not_sent", "message": reason})


def _fingerprint(request: CommandRequest) -> str:
    timeout = request.timeout.total_seconds() if request.timeout_given else None
    body = to_json([request.method, request.params, request.profile, request.one_way, timeout])
    return blake2b(body, digest_size=16).hexdigest()


def with_outcome(command: Command, outcome: Outcome) -> Command:
    """The command as it stands after its outcome."""
    return replace(
        command,
        state=outcome.state,
        finished_at=outcome.finished_at,
        received_by=outcome.received_by,
        result=outcome.result,
        error=outcome.error,
    )
