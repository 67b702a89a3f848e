"""This node's part of the audit: who asked what of which device and how it ended.

Nothing waits for it. While the database is away lines wait, up to a bound; what is over it is dropped, and a line says
how many were. Params and secrets are in no line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from app.access.asking import ASKING
from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.access.callers import Caller
from app.core.callback import Answer, Registration
from app.core.clock import Clock
from app.core.errors import DirectoryError, UnavailableError
from app.core.routing import Outcome, Recorded, Verdict
from app.observability import Counters, Fill
from app.observers.audit_writer import MOST_LINES, AuditWriter, Told

GAP_SECONDS: Final = 0.5
"""What was told is on record so long afterwards, where a write takes less than half of that.

It is what a node that is killed may lose. Till then it waits for others to be written with.
"""
SLACK_SECONDS: Final = 0.05
"""Of that, what timers may be late."""
_STILL: Final = 0.9
"""How much of a long write is expected of the next one."""
HEADS_SECONDS: Final = 10.0
"""How often heads are told to the log and to the other writers."""
REFUSALS: Final = 100
"""Refused requests of which one batch tells; the others are counted."""

Who = Callable[[Caller | None], tuple[str | None, str | None]]
"""The principal of a caller, and the public id of the key."""


class Audit(Observer):
    """Tells what happens to commands, where `commands`, and what else it is told.

    `who` knows callers, `tenant_of` whose device it is. Call `begin` with a name that no writer has had before.
    """

    def __init__(
        self,
        writer: AuditWriter,
        clock: Clock,
        counters: Counters,
        *,
        commands: bool,
        required: bool,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._wall = clock.wall
        self._counters = counters
        self._commands = commands
        self._required = required
        self._sleep = sleep
        self._who: Who = lambda _: (None, None)
        self._tenant_of: Callable[[str], str | None] = lambda _: None
        self._told: list[Told] = []
        """What is not in the chain yet."""
        self._running: dict[str, Told] = {}
        """Of that, the commands without outcome."""
        self._facts = 0
        self._dropped = 0
        self._refusals = 0

    def begin(self, writer: str, who: Who, tenant_of: Callable[[str], str | None]) -> None:
        """Write as this writer from now on."""
        self._who, self._tenant_of = who, tenant_of
        self._writer.begin(writer)

    def queues(self) -> dict[str, Fill]:
        """How much waits for the database."""
        return {"audit": Fill(len(self._told) + self._writer.waiting, MOST_LINES)}

    @property
    def health(self) -> str:
        """`ok`, or a sentence."""
        return self._writer.trouble or "ok"

    def check(self) -> None:
        """UnavailableError when commands must be on record, and nothing can be written."""
        if self._required and (self._is_full() or (self._writer.trouble and not self._writer.spools)):
            raise UnavailableError(
                f"commands must be on record, and the audit cannot be written: {self._writer.trouble}"
            )

    def registered(self, registration: Registration, opened_at: float) -> None:
        told = self._asked("command", registration)
        if told is not None:
            self._running[registration.command_id] = told

    def joined(self, registration: Registration, opened_at: float) -> None:
        self._asked("joined", registration)

    def closed(self, pending: Pending) -> None:
        if self._commands and pending.registered:
            self._ended(pending.command_id, pending.state.value, pending.device_id)

    def foreign(self, outcome: Outcome) -> None:
        if self._commands and not outcome.home_heard:
            self._ended(outcome.command_id, outcome.state.value, None)

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        outcome = recorded.outcome
        if not self._commands or outcome is None or recorded.verdict is not Verdict.WON or outcome.home_heard:
            return
        if recorded.waiting and not self._writer.name.startswith(f"{recorded.waiting[0]}/"):
            self._ended(outcome.command_id, outcome.state.value, answer.device_id)

    def cancelled(self, command_id: str, device_id: str) -> None:
        """A caller has cancelled a command."""
        self._tell("cancel", self._asker(device_id) | {"command": command_id, "device": device_id})

    def followed(self, what: Mapping[str, str | None]) -> None:
        """A caller has begun to follow a command or events."""
        self._tell("stream", {**self._asker(what.get("device") or ""), **what})

    def webhook(self, webhook_id: str, tenant: str | None, done: str, parts: Sequence[str] = ()) -> None:
        """A caller has done something with a webhook, or with these parts of it. Its URL may hold secrets."""
        told = self._asker("") | {"tenant": tenant or None, "webhook": webhook_id, "do": done}
        self._tell("webhook", told | ({"parts": list(parts)} if parts else {}))

    def denied(self, why: str, device_id: str) -> None:
        """A caller who is known may not do something with a device."""
        self._refusals += 1
        if self._refusals > REFUSALS:
            self._counters["audit.refusals_not_kept"] += 1
            return
        self._tell("refused", self._asker(device_id) | {"device": device_id, "why": why})

    def _asked(self, kind: str, registration: Registration) -> Told | None:
        """What is told of it, while that is not in the chain."""
        if not self._commands:
            return None
        told = self._asker(registration.device_id)
        told["command"] = registration.command_id
        told["device"] = registration.device_id
        told["profile"] = registration.profile
        told["method"] = registration.method
        return told if self._tell(kind, told) else None

    def _ended(self, command_id: str, state: str, device_id: str | None) -> None:
        """In the line of the command, while that is not in the chain; else in one of its own."""
        asked = self._running.pop(command_id, None)
        if asked is not None:
            asked["state"] = state
            asked["ended"] = self._now_us()
            return
        tenant = None if device_id is None else self._tenant_of(device_id) or None
        self._tell("outcome", {"command": command_id, "device": device_id, "tenant": tenant, "state": state})

    def _asker(self, device_id: str) -> Told:
        asking = ASKING.get()
        if asking is None:
            return {"tenant": self._tenant_of(device_id) or None}
        caller, address, agent = asking
        who, key = self._who(caller)
        return {
            "who": who,
            "key": key,
            "tenant": self._tenant_of(device_id) or None,
            "from": address,
            "agent": None if agent is None else agent[:256],
        }

    def _tell(self, kind: str, facts: Told, *, fact: bool = True) -> bool:
        """Whether there was room for it."""
        if self._is_full():
            self._dropped += 1
            self._counters["audit.dropped"] += 1
            return False
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._told.append({"at": self._now_us(), "kind": "dropped", "count": dropped})
        facts["kind"] = kind
        facts["at"] = self._now_us()
        self._told.append(facts)
        self._facts += fact
        return True

    def _bind(self) -> None:
        """Put what was told into the chain: from now on it is what it is."""
        told, self._told, self._running = self._told, [], {}
        facts, self._facts = self._facts, 0
        self._writer.bind(told, facts)

    def _is_full(self) -> bool:
        return self._writer.is_full(len(self._told))

    def _now_us(self) -> int:
        return int(self._wall() * 1_000_000)

    async def run(self) -> None:
        """Write what there is, and tell heads, until cancelled."""
        async with asyncio.TaskGroup() as group:  # what is asked of others must not keep lines waiting
            group.create_task(self._keep_writing())
            group.create_task(self._keep_telling())

    async def _keep_writing(self) -> None:
        pause, expected = GAP_SECONDS - SLACK_SECONDS, 0.0
        while True:
            await self._sleep(pause)
            self._refusals = 0
            began = self._clock.monotonic()
            with suppress(UnavailableError, DirectoryError):  # the writer has told the log
                await self._write()
            taken = self._clock.monotonic() - began
            expected = max(taken, _STILL * expected)
            pause = max(0.0, GAP_SECONDS - SLACK_SECONDS - expected - taken)

    async def _keep_telling(self) -> None:
        with suppress(UnavailableError, DirectoryError):
            await self._writer.take_over()
        while True:
            await self._sleep(HEADS_SECONDS)
            with suppress(UnavailableError, DirectoryError):
                await self._writer.take_over()
                await self.tell_heads()

    async def close(self) -> None:
        """Write everything, and tell the head."""
        await self._writer.close(self._write)
        self._writer.tell_log()

    async def tell_heads(self) -> None:
        """Put the heads of the others into this chain, and this head into the log."""
        seen = await self._writer.heads()
        if seen:
            self._tell("seen", {"seen": seen}, fact=False)
        self._writer.tell_log()

    async def _write(self) -> None:
        self._bind()
        await self._writer.write(self._bind)
