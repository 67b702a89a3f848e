"""Puts commands on record in Redis, unless their caller has given up by then.

A Redis that was frozen carries out what it finds on its connections when it goes on, also the calls whose callers were
told long ago that it was away. So each call says by when that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.core import keys
from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.commands.callback import Registration
from app.core.errors import (
    DeviceBusyError,
    IdempotencyMismatchError,
    StoreUnavailableError,
    TooManyHeldError,
    UnreadableRecordError,
)
from app.core.identifiers import partition_of_command
from app.store.commands import Joined, Registered
from app.store.redis.commands import records
from app.store.redis.commands.holds import note_held
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import REGISTER
from app.store.redis.driver.steps import StoreClocks
from app.store.redis.driver.unreadable import Unreadable
from app.store.rules import (
    MAX_JOINED,
    MOST_HELD,
    MOST_HELD_OF_LANE,
    MOST_HELD_OF_PARTITION,
    busy,
    lane_taken,
    micros,
    replaced,
    superseded,
    too_many_held,
)

GIVEN_UP_AFTER_US: Final = 500_000
"""The time after its budget in which a call may still be carried out: about so well is the clock of Redis known."""


class RedisRegister:
    """See the header of `register.lua` for the step."""

    def __init__(
        self, lanes: Lanes, unreadable: Unreadable, *, clock: Clock, clocks: StoreClocks, wake_key: WakeKey
    ) -> None:
        self._lanes = lanes
        self._unreadable = unreadable
        self._clock = clock
        self._wake_key = wake_key
        self._clocks = clocks

    async def put(self, registration: Registration) -> Registered | Joined:
        """See `CommandWriter.register`."""
        partition = partition_of_command(registration.command_id)
        topics, by_order, values = records.expected_keys(partition, registration)
        script_keys = [*fixed_keys(partition, registration.command_id), *topics, *values]
        if registration.idempotency_key is not None:
            script_keys.append(keys.idempotency(partition, registration.device_id, registration.idempotency_key))
        retention = records.retention_ms(registration)
        fixed = (
            registration.command_id,
            f"{registration.command_id}:{registration.device_id}",
            micros(registration.timeout),
            retention,
            registration.home_node,
            records.about(partition, registration, retention),
            registration.fingerprint,
            len(topics),
            by_order,
            len(values),
            MAX_JOINED,
            registration.trace or "",
            records.version(self._wake_key.token(registration.command_id), registration),
            " ".join(registration.notify),
        )
        rest = (*_held_arguments(registration), *_lane_arguments(registration))
        server = self._lanes.server_of(script_keys[0])
        asked_at = self._clock.monotonic()
        reply = await self._lanes.run(REGISTER, script_keys, *fixed, self._given_up_at(server, asked_at), *rest)
        if reply[0] == b"late":  # and yet it is waited for: the clock of Redis was set
            answered_at = self._clock.monotonic()
            self._clocks.told(server, int(reply[1]), asked_at, answered_at)
            reply = await self._lanes.run(REGISTER, script_keys, *fixed, self._given_up_at(server, answered_at), *rest)
        match reply:
            case [b"registered", created_at, deadline, state]:
                held = state == b"held"
                if held:
                    await note_held(self._lanes, registration.command_id)
                return Registered(int(created_at), int(deadline), held)
            case [b"joined", command_id, fields]:
                return Joined(self._unreadable.checked(command_id.decode(), records.pairs(fields)))
            case _:
                raise self._refusal(registration, reply)

    def _refusal(self, registration: Registration, reply: Sequence[bytes]) -> Exception:
        match reply:
            case [b"late", _]:
                return StoreUnavailableError("the clock of Redis is being set")
            case [b"full"]:
                lane = None if registration.lane is None else registration.lane.name
                return TooManyHeldError(too_many_held(registration.device_id, lane))
            case [b"taken"] if registration.lane is not None:
                return DeviceBusyError(lane_taken(registration.device_id, registration.lane.name))
            case [b"mismatch", command_id]:
                return IdempotencyMismatchError(command_id.decode())
            case [b"unreadable", command_id, reason]:
                error = UnreadableRecordError(command_id.decode(errors="replace"), reason.decode())
                return self._unreadable.skipped(error)
            case [b"busy", quarantine_left]:
                return DeviceBusyError(busy(registration.device_id, int(quarantine_left)))
            case _:
                return DeviceBusyError(busy(registration.device_id, None))

    def _given_up_at(self, server: str, asked_at: float) -> Argument:
        """The instant on the server's clock from which nobody waits for a call; empty where that clock is not known."""
        now = self._clocks.at(server, asked_at)
        return "" if now is None else now + round(self._lanes.budget * 1e6) + GIVEN_UP_AFTER_US


def _held_arguments(registration: Registration) -> list[Argument]:
    hold = registration.hold
    if hold is None:
        return [""] * 9 if registration.lane is not None else []
    condition: Argument = "taken" if hold.only_if_taken else ""
    if hold.approval is not None:
        condition = micros(hold.approval)
    makes_way = replaced(registration.command_id) if hold.replaces else b""
    bounds = (MOST_HELD, MOST_HELD_OF_PARTITION)
    about = (hold.not_before or "", condition, hold.replaces, makes_way, hold.run)
    return [micros(hold.lasts), hold.who, *bounds, *about]


def _lane_arguments(registration: Registration) -> list[Argument]:
    lane = registration.lane
    if lane is None:
        return []
    error = superseded(registration.command_id)
    rules = records.rules_of(lane, registration.device_id)
    return [*records.order_of(lane), MOST_HELD_OF_LANE, error, micros(lane.rest), *rules]


def fixed_keys(partition: int, command_id: str) -> list[str]:
    """The keys of every command: its record, what is due, and the list."""
    return [keys.callback(partition, command_id), keys.due(partition), keys.listing(partition)]
