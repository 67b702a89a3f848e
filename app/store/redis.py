"""The state store that a cluster shares: Lua scripts on Redis or Valkey, one atomic step each."""

from __future__ import annotations

import asyncio
import heapq
import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from importlib.resources import files
from itertools import count
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import RedisError

from app.core import keys
from app.core.addresses import split_address
from app.core.callback import Answer, Correlation, Registration
from app.core.clock import Clock
from app.core.command import Command, CommandState
from app.core.errors import (
    CommandNotFoundError,
    ConfigurationError,
    DeviceBusyError,
    IdempotencyMismatchError,
    IllegalTransitionError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnavailableError,
)
from app.core.identifiers import PARTITIONS, partition_of, partition_of_command
from app.core.reception import encode_reception, reception_of
from app.core.routing import Outcome, Recorded, Verdict
from app.measures import StoreMeasures
from app.observability import Fill
from app.store import redis_records as records
from app.store.base import Finished, Joined, Page, Query, Registered
from app.store.combiner import Argument, Combiner, CombinerOptions, Script
from app.store.rules import (
    GONE,
    MAX_JOINED,
    NO_RESPONSE,
    SWEEP_LIMIT,
    ended_by,
    marked_by,
    micros,
    page_cursor,
    page_start,
)

OLDEST_REDIS: Final = (6, 0)
PENDING_ROUND: Final = 200
SCAN_ROUND: Final = 500
SCAN_ROUNDS: Final = 20
"""One page of a device looks at 10,000 commands of its partition at most."""

_log = structlog.get_logger(__name__)


def load_script(name: str) -> Script:
    """A script of app/store/lua with the common part in front."""
    folder = files("app.store") / "lua"
    return Script.of((folder / "common.lua").read_text() + (folder / f"{name}.lua").read_text())


REGISTER, RESPOND, FINISH, MARK, SWEEP, PENDING = SCRIPTS = tuple(
    load_script(name) for name in ("register", "respond", "finish", "mark", "sweep", "pending")
)


class RedisStateStore:
    """See app/core/keys.py for the keys, and the header of each script for its step."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        counters: Counter[str],
        budget: timedelta = timedelta(seconds=2),
        options: CombinerOptions | None = None,
        measures: StoreMeasures | None = None,
    ) -> None:
        """`budget` bounds each call but `respond`. ConfigurationError when the URL cannot be used."""
        self._connect = connector(url)
        self._clock = clock
        self._counters = counters
        self._budget = budget.total_seconds()
        self._options = options or CombinerOptions()
        self._measures = measures or StoreMeasures()
        self._combiner: Combiner | None = None
        # Attempts to respond must differ between nodes and restarts; nobody reads anything out of them.
        self._attempt_prefix = secrets.token_hex(8)
        self._attempts = count()

    @property
    def connected(self) -> bool:
        """Whether a connection stands, as far as we know."""
        return self._combiner is not None and self._combiner.connected

    async def start(self) -> None:
        if self._combiner is not None:
            return
        combiner = self._combiner = Combiner(
            self._connect, SCRIPTS, counters=self._counters, options=self._options, measures=self._measures
        )
        combiner.start()
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                await combiner.call(("PING",), None)
                await self._check_server(combiner)
        except TimeoutError:
            reason = combiner.last_error or f"no answer within {self._options.answer_seconds:g} s"
            await self.close()
            raise StoreUnavailableError(f"Redis cannot be used now: {reason}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        combiner, self._combiner = self._combiner, None
        if combiner is not None:
            await combiner.close()

    def queues(self) -> dict[str, Fill]:
        waiting = 0 if self._combiner is None else self._combiner.outstanding
        return {"store_calls": Fill(waiting, self._options.max_queue)}

    async def ping(self) -> None:
        await self._call("PING")

    async def now(self) -> int:
        seconds, microseconds = await self._call("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    async def register(self, registration: Registration) -> Registered | Joined:
        partition = partition_of_command(registration.command_id)
        topics, by_order, values = records.expected_keys(partition, registration)
        script_keys = [*_fixed_keys(partition, registration.command_id), *topics, *values]
        if registration.idempotency_key is not None:
            script_keys.append(keys.idempotency(partition, registration.device_id, registration.idempotency_key))
        reply = await self._run(
            REGISTER,
            script_keys,
            registration.command_id,
            f"{registration.command_id}:{registration.device_id}",
            micros(registration.timeout),
            records.retention_ms(registration),
            registration.home_node,
            records.about(partition, registration),
            registration.fingerprint,
            len(topics),
            by_order,
            len(values),
            MAX_JOINED,
            registration.trace or "",
        )
        match reply:
            case [b"registered", created_at, deadline]:
                return Registered(int(created_at), int(deadline))
            case [b"joined", command_id, fields]:
                return Joined(records.command(command_id.decode(), records.pairs(fields)))
            case [b"mismatch", command_id]:
                raise IdempotencyMismatchError(command_id.decode())
            case _:
                raise DeviceBusyError(
                    f"device {registration.device_id} has a command in flight that an answer may mean"
                )

    async def respond(self, answer: Answer, receiver: str) -> Recorded:
        try:
            script_keys = self._named_by(answer)
        except InvalidInputError:
            return Recorded(Verdict.UNKNOWN)
        reply = await self._run(
            RESPOND,
            script_keys,
            answer.correlation.value,
            answer.value if answer.correlation is Correlation.ID else "",
            records.topic_digest(answer.topic),
            answer.device_id,
            answer.state.value,
            answer.result or b"",
            answer.error or b"",
            receiver,
            encode_reception(reception_of(answer)),
            patient=True,
        )
        return records.recorded(reply, answer, receiver)

    async def finish(self, command_id: str, state: CommandState, finisher: str, error: bytes | None = None) -> Finished:
        allowed = records.words(ended_by(state))
        try:
            script_keys = _fixed_keys(partition_of_command(command_id), command_id)
        except InvalidInputError:
            raise CommandNotFoundError(command_id) from None
        match await self._run(FINISH, script_keys, command_id, state.value, allowed, finisher, error or b""):
            case [b"won", finished_at, heard]:
                return Finished(won=True, outcome=records.made(command_id, state, finished_at, error, heard))
            case [b"lost", *fields]:
                return Finished(won=False, outcome=records.outcome(command_id, fields))
            case [b"illegal", before]:
                raise IllegalTransitionError(command_id, f"a command that is {before.decode()} cannot be {state}")
            case _:
                raise CommandNotFoundError(command_id)

    async def mark(self, command_id: str, state: CommandState) -> None:
        allowed = records.words(marked_by(state))
        try:
            script_keys = [keys.callback(partition_of_command(command_id), command_id)]
        except InvalidInputError:
            return
        await self._run(MARK, script_keys, state.value, allowed)

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        replies = await self._read(command_ids, records.COMMAND_FIELDS)
        return [
            records.command(command_id, fields) if fields is not None else None
            for command_id, fields in zip(command_ids, replies, strict=True)
        ]

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        replies = await self._read(command_ids, records.OUTCOME_FIELDS)
        return [self._outcome(one, fields) for one, fields in zip(command_ids, replies, strict=True)]

    async def list_commands(self, query: Query) -> Page:
        """For one device, its partition is read until the page is full; it may hold commands of other devices.

        Across devices every partition is asked once, 256 commands to Redis in two round trips, and each gives up to a
        page of members.
        """
        start = page_start(query.cursor)
        if query.device_id is None:
            entries, more = await self._newest(query.limit, start)
        else:
            entries, more = await self._newest_of(query.device_id, query.limit, start)
        commands = await self.get([entry.command_id for entry in entries[: query.limit]])
        shown = [one for one in commands if one is not None and query.state in (None, one.state)]
        return Page(shown, page_cursor(*more) if more else None)

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        found = await asyncio.gather(*(self._pending_ids(one, node_id, limit) for one in range(PARTITIONS)))
        commands = await self.get([command_id for command_ids in found for command_id in command_ids])
        pending = (one for one in commands if one is not None and not one.state.final)
        return heapq.nsmallest(limit, pending, key=lambda command: (command.deadline, command.id))

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        arguments = (micros(grace), finisher, NO_RESPONSE, SWEEP_LIMIT)
        replies = await asyncio.gather(
            *(self._run(SWEEP, [keys.due(one), keys.listing(one)], *arguments) for one in partitions)
        )
        return [
            records.made(one.decode(), CommandState.TIMED_OUT, finished_at, NO_RESPONSE, heard)
            for reply in replies
            for one, finished_at, heard in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    async def _check_server(self, combiner: Combiner) -> None:
        try:
            info = await combiner.call(("INFO",), self._options.answer_seconds)
        except StoreRefusedError as error:
            _log.warning("store_unchecked", reason=str(error), needed="Redis 6.0 or newer, maxmemory-policy noeviction")
        else:
            check_server(records.info(info))

    def _named_by(self, answer: Answer) -> list[str]:
        """The keys that the response names; InvalidInputError when its command id is none."""
        if answer.correlation is Correlation.ID:
            return _fixed_keys(partition_of_command(answer.value), answer.value)
        partition = partition_of(answer.device_id)
        indexes = [keys.due(partition), keys.listing(partition)]
        if answer.correlation is Correlation.VALUE:
            return [keys.correlation(partition, answer.topic, answer.value), *indexes]
        attempt = f"attempt {self._attempt_prefix} {next(self._attempts)}"
        return [keys.topic(partition, answer.topic), *indexes, keys.correlation(partition, answer.topic, attempt)]

    def _outcome(self, command_id: str, fields: records.Fields | None) -> Outcome | None:
        if fields is None:
            return Outcome(command_id, CommandState.TIMED_OUT, round(self._clock.wall() * 1_000_000), error=GONE)
        return records.outcome_of(command_id, fields)

    async def _read(self, command_ids: Sequence[str], names: Sequence[str]) -> list[records.Fields | None]:
        """The fields of the records, None where there is none; `state` must be the first name."""

        async def read(command_id: str) -> records.Fields | None:
            try:
                key = keys.callback(partition_of_command(command_id), command_id)
            except InvalidInputError:
                return None
            values = await self._call("HMGET", key, *names)
            return dict(zip(names, values, strict=True)) if values[0] is not None else None

        return await asyncio.gather(*(read(one) for one in command_ids))

    async def _newest(
        self, limit: int, start: tuple[int, str] | None
    ) -> tuple[list[records.Entry], tuple[int, str] | None]:
        parts = await asyncio.gather(*(self._members(one, limit + 1, start) for one in range(PARTITIONS)))
        merged = heapq.nlargest(limit + 1, (entry for part in parts for entry in part), key=lambda one: one.position)
        return merged, merged[limit - 1].position if len(merged) > limit else None

    async def _newest_of(
        self, device_id: str, limit: int, start: tuple[int, str] | None
    ) -> tuple[list[records.Entry], tuple[int, str] | None]:
        partition = partition_of(device_id)
        own: list[records.Entry] = []
        for _ in range(SCAN_ROUNDS):
            entries = await self._members(partition, SCAN_ROUND, start)
            for entry in entries:
                if entry.device_id == device_id:
                    own.append(entry)
                if len(own) > limit:
                    return own, own[limit - 1].position
            if len(entries) < SCAN_ROUND:
                return own, None
            start = entries[-1].position
        return own, start

    async def _members(self, partition: int, size: int, start: tuple[int, str] | None) -> list[records.Entry]:
        """Members of the partition's list, newest first, after `start`."""
        created_at, after = start or (0, "")
        most: Argument = created_at if start else "+inf"
        # Members with the score of `start` come again; there are hardly ever two, for a script takes microseconds.
        reply = await self._call(
            "ZREVRANGEBYSCORE", keys.listing(partition), most, "-inf", "WITHSCORES", "LIMIT", 0, size + 1
        )
        entries = []
        for member, score in zip(reply[::2], reply[1::2], strict=True):
            command_id, _, device_id = member.decode().partition(":")
            entry = records.Entry(int(float(score)), command_id, device_id)
            if start is None or entry.position < (created_at, after):
                entries.append(entry)
        return entries[:size]

    async def _pending_ids(self, partition: int, node_id: str, limit: int) -> list[str]:
        ids: dict[str, None] = {}
        least = b"-inf"
        while least and len(ids) < limit:
            least, *found = await self._run(PENDING, [keys.due(partition)], node_id, least, PENDING_ROUND)
            ids.update((command_id.decode(), None) for command_id in found)
        return list(ids)

    async def _run(
        self, script: Script, script_keys: Sequence[str], *arguments: Argument, patient: bool = False
    ) -> Any:  # noqa: ANN401 - what the script replies
        return await self._running().run_script(script, script_keys, arguments, None if patient else self._budget)

    async def _call(self, *command: Argument) -> Any:  # noqa: ANN401 - what Redis replies
        return await self._running().call(command, self._budget)

    def _running(self) -> Combiner:
        if self._combiner is None:
            raise StoreUnavailableError("the store is closed")
        return self._combiner


def connector(url: str) -> partial[AbstractConnection]:
    """Makes connections to this URL, with TLS for rediss://; ConfigurationError when it cannot be used."""
    try:
        split_address(url)
        arguments: dict[str, Any] = dict(parse_url(url))
        kind = arguments.pop("connection_class", Connection)
        # RESP 2 needs no handshake. Time limits are the combiner's, one for a whole round trip.
        arguments |= {"protocol": 2, "driver_info": None, "client_name": "homing", "decode_responses": False}
        arguments |= {"socket_timeout": None, "socket_connect_timeout": None}
        connect = partial(kind, **arguments)
        connect()
    except (TypeError, ValueError, RedisError) as error:
        raise ConfigurationError(f"the store's URL cannot be used: {error}") from None
    return connect


def check_server(info: dict[str, str]) -> None:
    """ConfigurationError when this server must not hold our state."""
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_REDIS:
        raise ConfigurationError(f"the store is Redis {version or '(unknown)'}; needed is 6.0 or newer, or Valkey")
    if info.get("redis_mode") == "cluster":
        raise ConfigurationError("the store is a Redis Cluster; allowed is a single primary, with or without replicas")
    policy = info.get("maxmemory_policy")
    if policy is None:
        _log.warning("eviction_policy_unknown", reason="INFO does not tell it; it must be noeviction")
    elif policy != "noeviction":
        # Anything else removes pending commands without a word (failure mode F30).
        raise ConfigurationError(f"Redis has maxmemory-policy {policy}; needed is noeviction (CONFIG SET, redis.conf)")


def _fixed_keys(partition: int, command_id: str) -> list[str]:
    return [keys.callback(partition, command_id), keys.due(partition), keys.listing(partition)]
