"""Callers: they send commands to nodes in turn, and go to another node with their key when one is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import repeat
from random import Random
from typing import Annotated, Any, Final

import orjson
from pydantic import Field

from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command, CommandState
from homing_rig.chaos.history import (
    GONE,
    AnswerAcked,
    Fail,
    FinalRead,
    Invoke,
    Mode,
    Ok,
    OperationKind,
    Unknown,
)
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.network import Connection, Link, Side
from homing_rig.simulation.node import REPEATABLE, SimNode, Told
from homing_rig.simulation.recording import Recording
from homing_simulator.families import ECHO

DEVICE: Final = r"device-\d{1,6}"
"""The ids of devices, as a pattern."""
CALLER: Final = r"caller-\d{1,6}"
"""The names of callers that publish events, as a pattern."""
RETRY_PAUSE: Final = (0.05, 0.25)
PROBE: Final = "probe"
"""The beginning of the nonces to which devices answer at once."""
PROBE_SECONDS: Final = 20.0
"""A device finds out in that time that its connection is half open, and comes back."""
TOLD_SECONDS: Final = 2.0
"""Within that a caller learns of an answer that came at once; no way takes longer than a third of a second."""
PATIENCE: Final = 20.0
"""The time for which a caller goes on trying, in seconds."""
_OK, _ACCEPTED, _NOT_FOUND, _CONFLICT, _DEADLINE = 200, 202, 404, 409, 504
_DEFINITE: Final = frozenset(
    ("broker-unavailable", "device-busy", "limit-reached", "node-draining", "not-ready", "not-sent")
)


@dataclass(frozen=True, slots=True, order=True)
class Wish:
    """One command that somebody wants done. Instants and durations are in seconds."""

    at: Annotated[float, Field(ge=0, le=3600)]
    number: Annotated[int, Field(ge=0)]
    device: Annotated[str, Field(pattern=f"^{DEVICE}$")]
    timeout: Annotated[float, Field(ge=0.01, le=600)]
    waits: bool
    """True if its caller waits for the outcome, or takes 202 and comes back."""
    keyed: bool
    cancels_after: Annotated[float, Field(ge=0, le=600)] | None = None
    """The instant at which somebody cancels it, after it was accepted."""
    repeatable: bool = False
    """True if a survivor may send it again when its node has died."""
    hold: Annotated[float, Field(ge=0.1, le=600)] | None = None
    """The time for which it may wait for its device; None if it is sent at once."""


class Callers:
    """All of them, in one lane."""

    def __init__(
        self, loop: SimLoop, nodes: Sequence[SimNode], ways: Sequence[Link], recording: Recording, chance: Random
    ) -> None:
        self.lane: Final = Lane("callers")
        self.open = 0
        self.known: dict[str, None] = {}
        """The ids of all commands that a caller was told of."""
        self._loop = loop
        self._nodes = nodes
        self._ways = {node.node_id: way for node, way in zip(nodes, ways, strict=True)}
        self._recording = recording
        self._chance = chance

    def send(self, wishes: Sequence[Wish]) -> None:
        """Let each begin at its time."""
        for wish in wishes:
            self.open += 1
            self._loop.call_at(wish.at, self._begin, wish, context=self.lane.context)

    def any_node(self) -> SimNode:
        """One of the nodes, whether it runs or not."""
        return self._chance.choice(self._nodes)

    async def read_all(self, command_ids: Sequence[str]) -> None:
        """Note what nodes say of each in the end; each node is asked once, for its share."""
        shares: dict[str, list[str]] = {node.node_id: [] for node in self._nodes if node.running}
        for command_id in command_ids:
            shares[self._chance.choice([*shares])].append(command_id)
        for node in self._nodes:
            if share := shares.get(node.node_id):
                told = await self.ask(node, partial(node.read, share), 5.0)
                self._note(node, zip(share, told.found or repeat(None), strict=False))

    def _note(self, node: SimNode, found: Iterable[tuple[str, Command | None]]) -> None:
        for command_id, command in found:
            facts = {"state": GONE} if command is None else _facts(command)
            self._recording.write(FinalRead(at=self._loop.time(), node=node.node_id, command_id=command_id, **facts))

    async def probe(self, devices: Sequence[str]) -> list[str]:
        """Send a command by each node to a device that answers at once; what they said that was no success."""
        found = []
        for number, node in enumerate(self._nodes if devices else ()):
            wish = Wish(0.0, number, devices[number % len(devices)], PROBE_SECONDS, waits=True, keyed=False)
            told = await self._send(wish, node, f"{PROBE}-{node.node_id}")
            if told is None or told.status != _OK:
                said = "nothing" if told is None else f"{told.status} {told.slug}"
                found.append(f"{node.node_id} says {said} to a command that was sent when everything was well")
            elif (took := self._since_answer(told.command_id)) > TOLD_SECONDS:
                found.append(f"{node.node_id} tells the outcome after {took:.1f} s, when everything was well")
        return found

    def _since_answer(self, command_id: str | None) -> float:
        """The time since a device was told that the broker has its answer; the device may have been cut off before."""
        events = reversed(self._recording.events)
        acked = (one.at for one in events if isinstance(one, AnswerAcked) and one.command_id == command_id)
        return self._loop.time() - next(acked, self._loop.time())

    def _begin(self, wish: Wish) -> None:
        _begun = self._loop.create_task(self._until_answered(wish))

    async def _until_answered(self, wish: Wish) -> None:
        give_up, longer = self._loop.time() + PATIENCE, 1.0
        try:
            while not await self._attempt(wish) and wish.keyed and self._loop.time() < give_up:
                await asyncio.sleep(longer * self._chance.uniform(*RETRY_PAUSE))
                longer = min(2 * longer, 8.0)
        finally:
            self.open -= 1

    async def _attempt(self, wish: Wish) -> bool:
        """One request; whether the caller is content with the answer."""
        told = await self._send(wish, self._chance.choice(self._nodes), f"{wish.number}")
        if told is None:
            return False
        if told.command_id is not None and told.status == _ACCEPTED and wish.cancels_after is not None:
            await asyncio.sleep(wish.cancels_after)
            await self._cancel(told.command_id, wish)
        return told.status in (_OK, _ACCEPTED, _DEADLINE) or told.slug == "not-sent"

    async def _send(self, wish: Wish, node: SimNode, nonce: str) -> Told | None:
        key = f"key-{nonce}" if wish.keyed else None
        request = CommandRequest(
            device_id=wish.device,
            method=REPEATABLE if wish.repeatable else "take_off",
            params={ECHO: nonce},
            timeout=timedelta(seconds=wish.timeout),
            profile="homing",
            idempotency_key=key,
            hold=None if wish.hold is None else timedelta(seconds=wish.hold),
        )
        invoke = Invoke(
            at=self._loop.time(),
            op=next(self._recording.operations),
            caller=f"caller-{nonce}",
            node=node.node_id,
            kind=OperationKind.COMMAND,
            timeout=wish.timeout,
            hold=wish.hold or 0.0,
            device=wish.device,
            nonce=nonce,
            key=key,
            mode=Mode.SYNC if wish.waits else Mode.ASYNC,
        )
        work = partial(node.send, request, waits=wish.waits)
        return await self._operation(invoke, node, work, wish.timeout + (wish.hold or 0.0) + 1.0)

    async def _cancel(self, command_id: str, wish: Wish) -> None:
        node = self._chance.choice(self._nodes)
        invoke = Invoke(
            at=self._loop.time(),
            op=next(self._recording.operations),
            caller=f"caller-{wish.number}",
            node=node.node_id,
            kind=OperationKind.CANCEL,
            timeout=5.0,
            command_id=command_id,
        )
        await self._operation(invoke, node, partial(node.cancel, command_id), 4.0)

    async def _operation(
        self, invoke: Invoke, node: SimNode, work: Callable[..., Coroutine[Any, Any, Told]], seconds: float
    ) -> Told | None:
        """Make the request and note how it ended; None when there was no answer."""
        self._recording.write(invoke)
        told: Told | None = None
        kind: type[Ok | Fail | Unknown] = Unknown
        reason: str | None
        try:
            told = await self.ask(node, work, seconds)
            kind, reason = _kind(told, invoke.kind), told.slug or None
        except ConnectionRefusedError:
            kind, reason = Fail, "refused"
        except TimeoutError:
            reason = "timeout"
        except ConnectionError:
            reason = "reset"
        facts: dict[str, Any] = {}
        if told is not None:
            facts = {"status": told.status, "command_id": told.command_id, "replayed": told.replayed}
            if told.command_id is not None:
                self.known[told.command_id] = None
            if kind is Ok and told.command is not None:
                facts |= _facts(told.command)
            if told.status == _DEADLINE:
                facts["state"] = CommandState.TIMED_OUT.value
        now = self._loop.time()
        self._recording.write(kind(at=now, op=invoke.op, latency=now - invoke.at, reason=reason, **facts))
        return told

    async def ask(self, node: SimNode, work: Callable[..., Coroutine[Any, Any, Told]], seconds: float) -> Told:
        """The reply of a node to one request; ConnectionError, or TimeoutError after so many seconds."""
        way = self._ways[node.node_id]
        reply: asyncio.Future[Told] = self._loop.create_future()
        serving: list[asyncio.Task[None]] = []
        await asyncio.sleep(2 * way.delay())
        if not (node.running and way.up):
            raise ConnectionRefusedError("connection refused")

        def reset() -> None:
            if not reply.done():
                reply.set_exception(ConnectionResetError("connection reset"))

        def gone() -> None:
            for task in serving:
                task.cancel()

        here = Side(copy_context(), reset, float("inf"))
        there = Side(node.life.lane.context, gone, 60.0)
        connection = Connection(self._loop, way, here, there)
        connection.to_server.send(node.serve, work, connection, reply, serving)
        timer = self._loop.call_later(seconds, _time_out, reply)
        try:
            return await reply
        finally:
            timer.cancel()
            connection.close()


def _time_out(reply: asyncio.Future[Told]) -> None:
    if not reply.done():
        reply.set_exception(TimeoutError())


def _kind(told: Told, kind: OperationKind) -> type[Ok | Fail | Unknown]:
    if told.status in (_OK, _ACCEPTED) or (told.status == _DEADLINE and told.command_id):
        return Ok
    if kind is OperationKind.CANCEL and told.status == _CONFLICT:
        return Ok
    definite = told.slug in _DEFINITE or (told.status < 500 and told.status != _NOT_FOUND)  # noqa: PLR2004
    return Fail if definite else Unknown


def _facts(command: Command) -> dict[str, Any]:
    late = command.late
    return {
        "state": command.state.value,
        "result_nonce": _echo(command.result),
        "claims": None if command.hold is None else command.hold.claims,
        "late": late is not None,
        "late_nonce": None if late is None else _echo(orjson.dumps(orjson.loads(late).get("result"))),
        "overrun": None
        if command.finished_at is None
        else round((command.finished_at - command.deadline) / 1_000_000, 3),
    }


def _echo(result: bytes | None) -> str | None:
    found = orjson.loads(result) if result else None
    echoed = found.get(ECHO) if isinstance(found, dict) else None
    return echoed if isinstance(echoed, str) else None
