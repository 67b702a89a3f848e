"""Changes commands in Redis: each call is one script, and so one atomic step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Final

import structlog

from app.core import keys
from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.reception import encode_reception, reception_of, reception_of_finding
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.core.errors import (
    CommandNotFoundError,
    IllegalTransitionError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnavailableError,
    UnreadableRecordError,
)
from app.core.identifiers import partition_of, partition_of_command
from app.core.profiles.correlation import Correlation
from app.core.profiles.probes import ProbeFinding
from app.store.commands import Finished, Joined, Registered
from app.store.holds import Decided
from app.store.redis.commands import records
from app.store.redis.commands.holds import note_held
from app.store.redis.commands.register import RedisRegister, fixed_keys
from app.store.redis.commands.sweep_look import SweepLook
from app.store.redis.commands.timed_scripts import TimedScripts
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import CONFIRM, FINISH, HOLD_DECIDE, MARK, RESPOND, SWEEP, VERIFY
from app.store.redis.driver.steps import StoreClocks
from app.store.redis.driver.unreadable import Unreadable
from app.store.rules import (
    CONFIRMED_FROM,
    HOLD_EXPIRED,
    NO_RESPONSE,
    NOT_APPROVED,
    SWEEP_LIMIT,
    ended_by,
    error_of_finding,
    marked_by,
    micros,
    not_confirmed,
    not_verified,
    refused_by_second,
    replaced,
    superseded,
    verified_annex,
    verified_news,
)

_log = structlog.get_logger(__name__)


class RedisCommandWriter:
    """See `app/core/keys.py` for the keys, and the header of each script for its step."""

    def __init__(
        self,
        lanes: Lanes,
        unreadable: Unreadable,
        *,
        clock: Clock,
        clocks: StoreClocks,
        timed: TimedScripts,
        counters: Counter[str],
        wake_key: WakeKey,
        attempts_of: str,
    ) -> None:
        """`attempts_of` is a text that no other node and no other start of this one has."""
        self._lanes = lanes
        self._unreadable = unreadable
        self._clock = clock
        self._counters = counters
        self._wake_key = wake_key
        self._clocks = clocks
        self._timed = timed
        # Attempts to respond must differ between nodes and restarts; nobody reads anything out of them.
        self._attempts_of = attempts_of
        self._attempts = count()
        self._sweep_look = SweepLook(lanes)
        self._register = RedisRegister(lanes, unreadable, clock=clock, clocks=clocks, wake_key=wake_key)

    async def register(self, registration: Registration) -> Registered | Joined:
        return await self._register.put(registration)

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        try:
            script_keys = self._named_by(answer)
            if open_only or answer.correlation is Correlation.ORDER:
                script_keys.append(self._new_attempt(answer))
        except InvalidInputError:
            return Recorded(MatchResult.UNKNOWN)
        reply = await self._lanes.run(
            RESPOND,
            script_keys,
            Correlation.ID.value if _has_id(answer) else answer.correlation.value,
            answer.value if _has_id(answer) else "",
            records.topic_digest(answer.topic),
            answer.device_id,
            answer.state.value,
            answer.result or b"",
            answer.error or b"",
            receiver,
            encode_reception(reception_of(answer)),
            answer.profile,
            *(("open",) if open_only else ()),
            patient=True,
        )
        if reply[0] == b"unreadable":
            error = self._unreadable.skipped(
                UnreadableRecordError(reply[1].decode(errors="replace"), reply[2].decode())
            )
            # Another node may be able to: unacknowledged it stays with the broker.
            raise StoreRefusedError(str(error))
        if reply[0] == b"won":
            reply[5] = await self._heard(reply[5])
        return records.recorded(reply, answer, receiver)

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        allowed = records.words(ended_by(state, only_held=only_held))
        try:
            script_keys = fixed_keys(partition_of_command(command_id), command_id)
        except InvalidInputError:
            raise CommandNotFoundError(command_id) from None
        match await self._lanes.run(FINISH, script_keys, command_id, state.value, allowed, finisher, error or b""):
            case [b"won", finished_at, told]:
                heard = await self._heard(told)
                return Finished(won=True, outcome=records.made(command_id, state, finished_at, error, heard))
            case [b"lost", *fields]:
                return Finished(won=False, outcome=self._unreadable.told(command_id, fields))
            case [b"unreadable", reason]:
                raise self._unreadable.skipped(UnreadableRecordError(command_id, reason.decode()))
            case [b"illegal", before]:
                raise IllegalTransitionError(command_id, f"a command that is {before.decode()} cannot be {state}")
            case _:
                raise CommandNotFoundError(command_id)

    async def confirm(self, command_id: str, finding: ProbeFinding, finder: str) -> Finished:
        try:
            script_keys = fixed_keys(partition_of_command(command_id), command_id)
        except InvalidInputError:
            raise CommandNotFoundError(command_id) from None
        state, error, reception = finding.state, error_of_finding(finding), reception_of_finding(finding)
        behind = encode_reception(reception)
        allowed = records.words(CONFIRMED_FROM)
        reply = await self._lanes.run(
            CONFIRM, script_keys, command_id, state.value, allowed, finder, behind, error or b""
        )
        match reply:
            case [b"won", finished_at, told]:
                made = records.made(command_id, state, finished_at, error, await self._heard(told))
                return Finished(won=True, outcome=replace(made, received_by=finder, reception=reception))
            case [b"lost", *fields]:
                return Finished(won=False, outcome=self._unreadable.told(command_id, fields))
            case [b"unreadable", reason]:
                raise self._unreadable.skipped(UnreadableRecordError(command_id, reason.decode()))
            case [b"illegal", what_it_is]:
                raise not_confirmed(command_id, what_it_is.decode())
            case _:
                raise CommandNotFoundError(command_id)

    async def verify(self, command_id: str, finding: ProbeFinding) -> bool:
        try:
            script_keys = [keys.callback(partition_of_command(command_id), command_id)]
        except InvalidInputError:
            raise CommandNotFoundError(command_id) from None
        reply = await self._lanes.run(VERIFY, script_keys, command_id, verified_annex(finding), verified_news(finding))
        match reply:
            case [b"annexed"]:
                return True
            case [b"known"]:
                return False
            case [b"unreadable", reason]:
                raise self._unreadable.skipped(UnreadableRecordError(command_id, reason.decode()))
            case [b"illegal", what_it_is]:
                raise not_verified(command_id, what_it_is.decode())
            case _:
                raise CommandNotFoundError(command_id)

    async def decide(self, command_id: str, decision: ApprovalDecision, finisher: str) -> Decided:
        try:
            script_keys = fixed_keys(partition_of_command(command_id), command_id)
        except InvalidInputError:
            return Decided(won=False)
        word = "approved" if decision.approves else "refused"
        error = refused_by_second(decision)
        instead = superseded(command_id), replaced("*")
        reply = await self._timed.run(
            HOLD_DECIDE, script_keys, command_id, decision.to_text(), word, error, finisher, *instead
        )
        match reply:
            case [b"approved"]:
                await note_held(self._lanes, f"{command_id} approved")
                return Decided(won=True)
            case [b"refused", finished_at, told]:
                heard = await self._heard(told)
                return Decided(True, records.made(command_id, CommandState.CANCELLED, finished_at, error, heard))
            case [b"ended", *fields]:
                return Decided(True, self._unreadable.told(command_id, fields))
            case _:
                return Decided(won=False)

    async def mark(self, command_id: str, state: CommandState, sender: str | None = None) -> bool:
        allowed = records.words(marked_by(state))
        try:
            script_keys = [keys.callback(partition_of_command(command_id), command_id)]
        except InvalidInputError:
            return False
        return bool(await self._lanes.run(MARK, script_keys, state.value, allowed, sender or "") == 1)

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        by_server: dict[str, list[int]] = {}
        for one in partitions:
            by_server.setdefault(self._lanes.server_of(keys.due(one)), []).append(one)
        swept = await asyncio.gather(
            *(self._sweep(server, some, finisher, grace) for server, some in by_server.items()), return_exceptions=True
        )
        errors = [one for one in swept if isinstance(one, BaseException)]
        for error in errors:
            # Where one of several servers is away, the others' outcomes are told nevertheless.
            if len(errors) == len(swept) or not isinstance(error, StoreUnavailableError):
                raise error
        return [outcome for one in swept if not isinstance(one, BaseException) for outcome in one]

    async def _sweep(self, server: str, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        """Sweep partitions of one server."""
        before = self._clock.monotonic()
        now = await self._lanes.now(keys.due(partitions[0]))
        eras = self._clocks.told(server, now, before, self._clock.monotonic()).eras
        latest = max(now, *(now - one.set_since for one in eras))
        partitions = await self._sweep_look.needed(partitions, latest - micros(grace))
        arguments: list[Argument] = [
            *(micros(grace), finisher, NO_RESPONSE, SWEEP_LIMIT, HOLD_EXPIRED, NOT_APPROVED),
            *self._timed.told(server, self._clock.monotonic()),
        ]
        replies = await asyncio.gather(
            *(self._lanes.run(SWEEP, [keys.due(one), keys.listing(one)], *arguments) for one in partitions),
            return_exceptions=True,
        )
        outcomes = []
        for reply in replies:
            if isinstance(reply, StoreRefusedError):
                continue  # the combiner has counted and named it; it is about one partition
            if isinstance(reply, BaseException):
                raise reply
            outcomes += await self._swept(reply)
        return outcomes

    async def _heard(self, told: bytes) -> bytes:
        """Return b"1" if the home node heard of an outcome; a script on a Redis Cluster may only name it."""
        if not told.startswith(b"?"):
            return told
        home, *follower = told[1:].split(b" ", 1)
        heard = b"1" if await self._lanes.listens(keys.node_channel(home.decode())) else b"0"
        return b" ".join((heard, *follower))

    async def _swept(self, reply: Sequence[bytes]) -> list[Outcome]:
        outcomes = []
        for identity, finished_at, what in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
            command_id = identity.decode(errors="replace")
            if (lapsed := next((one for one in _LAPSED if what.startswith(one)), None)) is not None:
                heard = await self._heard(what.removeprefix(lapsed))
                outcomes.append(records.made(command_id, CommandState.UNSENT, finished_at, _LAPSED[lapsed], heard))
            elif finished_at:
                heard = await self._heard(what)
                outcomes.append(records.made(command_id, CommandState.TIMED_OUT, finished_at, NO_RESPONSE, heard))
            else:
                self._unreadable.skipped(UnreadableRecordError(command_id, what.decode()))
        return outcomes

    def _named_by(self, answer: Answer) -> list[str]:
        """The keys that the response names; InvalidInputError when its command id is none."""
        if _has_id(answer):
            return fixed_keys(partition_of_command(answer.value), answer.value)
        partition = partition_of(answer.device_id)
        indexes = [keys.due(partition), keys.listing(partition)]
        if answer.correlation is Correlation.VALUE:
            return [keys.correlation(partition, answer.topic, answer.value), *indexes]
        return [keys.topic(partition, answer.topic), *indexes]

    def _new_attempt(self, answer: Answer) -> str:
        attempt = f"attempt {self._attempts_of} {next(self._attempts)}"
        partition = partition_of_command(answer.value) if _has_id(answer) else partition_of(answer.device_id)
        return keys.correlation(partition, answer.topic, attempt)


_LAPSED: Final = {b"held ": HOLD_EXPIRED, b"unapproved ": NOT_APPROVED}
"""The words of a sweep in front of the rest of commands that were held to the end, and their errors."""


def _has_id(answer: Answer) -> bool:
    """An echo has it by now: who found that it holds for a command has put it there."""
    return answer.correlation in (Correlation.ID, Correlation.ECHO)
