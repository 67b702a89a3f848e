"""Turns what a caller asks for into all that the store needs in order to recognise the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import blake2b

import orjson

from app.commands.send.publisher import Publisher
from app.core.access.callers import Caller
from app.core.clock import IdFactory
from app.core.commands.approval import TIME_TO_SEND
from app.core.commands.callback import Expectation, HoldRequest, Registration
from app.core.commands.command import IfOffline
from app.core.errors import InvalidInputError
from app.core.identifiers import command_id
from app.core.payload import JsonValue, compact
from app.core.profiles.lanes import LaneRule
from app.core.profiles.profile import DeviceProfile, to_json
from app.core.profiles.templates import CommandFacts
from app.core.values import value


@value
class CommandRequest:
    """The request of a caller, validated."""

    device_id: str
    method: str
    params: JsonValue
    timeout: timedelta
    profile: str
    one_way: bool = False
    idempotency_key: str | None = None
    timeout_given: bool = True
    """True if the caller gave it. The node's own choice is no part of the body: another node may choose otherwise."""
    if_offline: IfOffline | None = None
    """None leaves it to the node."""
    notify: tuple[str, ...] = ()
    """Webhook endpoints that are told of its outcome, besides those whose filter fits."""
    command_id: str = ""
    """The id that it has; empty where a new one is made."""
    hold: timedelta | None = None
    """The time that it may wait to be sent; None: it is sent at once, or not at all."""
    not_before: int | None = None
    """The instant before which it is not sent, in microseconds since 1970; only with `hold`."""
    replaces: str = ""
    """The key of what it takes the place of; only with `hold`, and empty if it has none."""
    run: str = ""
    """The fleet run that it belongs to; only with `hold`, and empty if it belongs to none."""
    approval: timedelta | None = None
    """The time within which a second person has to approve it; None if none is needed."""
    by_homing: bool = False
    """True if nobody asked for it: Homing asks a device for its state. Nobody is told of it."""

    @property
    def is_found_again(self) -> bool:
        """True if a repeated call finds it on record: by its key, or by the id that its caller has chosen."""
        return self.idempotency_key is not None or bool(self.command_id)

    def longest_hold(self, of_lane: timedelta = timedelta()) -> timedelta:
        """The longest time that it may be held, in a lane that holds commands for so long."""
        if self.hold is not None:
            return self.hold
        return of_lane if self.approval is None else self.approval + max(of_lane, TIME_TO_SEND)


ToldOf = Callable[[str, str, str, Sequence[str]], tuple[str, ...]]
"""Returns the endpoints that are told of a command to this device by this profile and method, with those that its
caller names."""


LastingCaller = Callable[[Caller | None], Caller | None]
"""Returns the caller as they are kept beside what they ask for."""


class Registrar:
    """The registrar of one node: commands that it registers are at home here."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        new_ulid: IdFactory,
        node_id: str,
        retention: timedelta,
        told_of: ToldOf,
        lasting: LastingCaller,
    ) -> None:
        self._publisher = publisher
        self._new_ulid = new_ulid
        self._node_id = node_id
        self._retention = retention
        self._told_of = told_of
        self._lasting = lasting

    def registration(
        self, request: CommandRequest, profile: DeviceProfile, timeout: timedelta, caller: Caller | None = None
    ) -> Registration:
        """A new command; `timeout` is what is left of the request's. InvalidInputError.

        The right of the `caller` is judged again when a command leaves that had to wait.
        """
        rule = profile.lane_of(request.method)
        identity = request.command_id or command_id(request.device_id, self._new_ulid())
        carrier = self._publisher.carrier
        facts = CommandFacts(identity, request.device_id, request.method, request.params, 0, 0)
        return Registration(
            command_id=identity,
            device_id=request.device_id,
            method=request.method,
            params=compact(orjson.dumps(request.params)),
            profile=profile.name,
            home_node=self._node_id,
            expectations=() if request.one_way else _expectations(profile, facts),
            timeout=timeout,
            retention=self._retention,
            quarantine=profile.quarantine,
            idempotency_key=request.idempotency_key,
            fingerprint=_fingerprint(request) if request.idempotency_key is not None else "",
            trace=None if carrier is None else carrier.context(),
            if_offline=request.if_offline or self._publisher.absence.default(profile.name),
            notify=()
            if request.by_homing
            else self._told_of(request.device_id, profile.name, request.method, request.notify),
            by_homing=request.by_homing,
            hold=self._hold(request, rule, caller),
            lane=None if rule is None else rule.lane,
        )

    def _hold(self, request: CommandRequest, rule: LaneRule | None, caller: Caller | None) -> HoldRequest | None:
        """The hold that the caller asks for, else that of the lane, which counts only if the lane is taken."""
        lasts = request.longest_hold() if rule is None else request.longest_hold(rule.hold)
        if not lasts:
            return None
        kept = self._lasting(caller)
        return HoldRequest(
            lasts,
            "" if kept is None else kept.to_text(),
            request.not_before,
            only_if_taken=request.hold is None and request.approval is None,
            approval=None if request.approval is None else min(request.approval, lasts),
            replaces=request.replaces,
            run=request.run,
        )


def _expectations(profile: DeviceProfile, facts: CommandFacts) -> tuple[Expectation, ...]:
    """Return where the command may be answered; InvalidInputError when no answer could be told to be its own."""
    found = profile.expectations(facts)
    if not found:
        raise InvalidInputError("params", _lacking(profile, facts.method))
    return found


def _lacking(profile: DeviceProfile, method: str) -> str:
    """Return why no answer to the command could be told to be its own."""
    specs = profile.answering(method)
    values = [" with ".join(spec.value) for spec in specs if spec.value]
    wishes = [one.equals for spec in specs if spec.echo is not None for one in spec.echo.wishes]
    states = [one for one in wishes if isinstance(one, str)]
    if named := " or ".join(dict.fromkeys([*values, *states])):
        kind = "text, a number, true or false" if values else "a value"
        return (
            f"profile {profile.name!r} knows the answer to {method} by {named}, which this command lacks; "
            f"needed: {kind} for one of them, or one_way: true"
        )
    return f"profile {profile.name!r} has no kind of response that answers {method}; needed: one_way: true"


def _fingerprint(request: CommandRequest) -> str:
    timeout = request.timeout.total_seconds() if request.timeout_given else None
    told = [request.method, request.params, request.profile, request.one_way, timeout]
    if request.if_offline is not None:  # else as 0.1.0 has it: a key stands for one command on nodes of both
        told.append(request.if_offline)
    if request.hold is not None:
        told.append(["hold", request.hold.total_seconds()])
    if request.not_before is not None:
        told.append(["not_before", request.not_before])
    if request.replaces:
        told.append(["replaces", request.replaces])
    if request.notify:
        told.append(list(request.notify))
    body = to_json(told)  # not orjson, which writes 1e16 where nodes of 0.2.0 write 1e+16
    return blake2b(body, digest_size=16).hexdigest()
