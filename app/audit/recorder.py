"""This node's part of the audit: who asked what of which device and how it ended.

Nothing waits for it. While the database is away lines wait, up to a bound; what is over it is dropped, and a line says
how many were. Params and secrets are in no line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from app.access.origin import ASKING, RequestOrigin
from app.audit.writer import MANY_IN_LINE, MOST_LINES, AuditWriter
from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.access.callers import Caller
from app.core.audit.lines import AuditBatch, AuditFact, AuditRow
from app.core.clock import Clock
from app.core.commands.callback import Answer, Registration
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.core.errors import DirectoryError, UnavailableError
from app.runtime.telemetry import Counters, Fill

GAP_SECONDS: Final = 0.5
"""A fact is on record after so long, where a write takes less than half of that.

A node that is killed may lose the facts of this time. Until it is over, a fact waits for others to be written with.
"""
SLACK_SECONDS: Final = 0.05
"""The part of the gap by which timers may be late."""
_STILL: Final = 0.9
"""The share of a long write that is expected of the next one."""
HEADS_SECONDS: Final = 10.0
"""The time after which heads are told again to the log and to the other writers."""
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
        self.gap_seconds = GAP_SECONDS
        self.heads_seconds = HEADS_SECONDS
        self._writer = writer
        self._clock = clock
        self._wall = clock.wall
        self._counters = counters
        self._commands = commands
        self._required = required
        self._sleep = sleep
        self._who: Who = lambda _: (None, None)
        self._tenant_of: Callable[[str], str | None] = lambda _: None
        self._blocks: list[AuditBatch] = []
        """The batches that are not in the chain yet, without the last one."""
        self._block = AuditBatch()
        """The last batch that is not in the chain yet."""
        self._askers: dict[tuple[RequestOrigin | None, str | None], int] = {}
        """The askers in the last batch, for devices of a tenant."""
        self._running: dict[str, AuditRow] = {}
        """The commands without an outcome whose facts are not in the chain yet."""
        self._room = MOST_LINES
        """The number of further things that may wait."""
        self._facts = 0
        self._dropped = 0
        self._refusals = 0

    def begin(self, writer: str, who: Who, tenant_of: Callable[[str], str | None]) -> None:
        """Write as this writer from now on."""
        self._who, self._tenant_of = who, tenant_of
        self._writer.begin(writer)

    def fills(self) -> dict[str, Fill]:
        """The number of facts that wait for the database."""
        told = len(self._blocks) * MANY_IN_LINE + len(self._block.told)
        return {"audit": Fill(told + self._writer.waiting, MOST_LINES)}

    @property
    def health(self) -> str:
        """`ok`, or a sentence."""
        return self._writer.trouble or "ok"

    def check(self) -> None:
        """UnavailableError when commands must be on record, and nothing can be written."""
        if self._required and (self._room <= 0 or (self._writer.trouble and not self._writer.spools)):
            raise UnavailableError(
                f"commands must be on record, and the audit cannot be written: {self._writer.trouble}"
            )

    def registered(self, registration: Registration, opened_at: float) -> None:
        if self._commands and self._has_room():
            device_id, command_id = registration.device_id, registration.command_id
            now_us, asker = self._now_us(), self._asker(device_id)
            row = [now_us, asker, command_id, device_id, registration.profile, registration.method]
            self._put(row, now_us)
            self._running[command_id] = row

    def joined(self, registration: Registration, opened_at: float) -> None:
        if self._commands:
            told = {"command": registration.command_id, "profile": registration.profile, "method": registration.method}
            self._tell("joined", told, registration.device_id)

    def closed(self, pending: Pending) -> None:
        if self._commands and pending.registered:
            self._ended(pending.command_id, pending.state.value, pending.device_id)

    def foreign(self, outcome: Outcome) -> None:
        if self._commands and not outcome.home_heard:
            self._ended(outcome.command_id, outcome.state.value, None)

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        outcome = recorded.outcome
        if not self._commands or outcome is None or recorded.verdict is not MatchResult.WON or outcome.home_heard:
            return
        if recorded.waiting and not self._writer.name.startswith(f"{recorded.waiting[0]}/"):
            self._ended(outcome.command_id, outcome.state.value, answer.device_id)

    def cancelled(self, command_id: str, device_id: str) -> None:
        """A caller has cancelled a command."""
        self._tell("cancel", {"command": command_id}, device_id)

    def probed(self, command_id: str, device_id: str) -> None:
        """A caller has Homing look for a command that has timed out."""
        self._tell("probe", {"command": command_id}, device_id)

    def sent_by_hand(self, caller: Caller, topic: str, device_id: str, profile: str) -> None:
        """A caller publishes a command by hand, which goes round the nodes; its payload is in no line."""
        if self._commands:
            who, key = self._who(caller)
            told = {"who": who, "key": key, "tenant": self._tenant_of(device_id) or None}
            self._note({"kind": "publish-raw", "device": device_id, **told, "profile": profile, "topic": topic})

    def decided(self, command_id: str, device_id: str, decision: str) -> None:
        """A second person has approved or refused a command, or may have, as nobody knows what the store did."""
        self._tell("approval", {"command": command_id, "decision": decision}, device_id)

    def lane_resumed(self, device_id: str, lane: str, stopped_by: str | None) -> None:
        """A caller has a lane of a device go on after a command failed."""
        self._tell("lane", {"lane": lane, "do": "resume", "command": stopped_by}, device_id)

    def followed(self, what: Mapping[str, str | None]) -> None:
        """A caller has begun to follow a command or events."""
        self._tell("stream", what, what.get("device"))

    def webhook(self, webhook_id: str, tenant: str | None, done: str, parts: Sequence[str] = ()) -> None:
        """A caller has done something with a webhook, or with these parts of it. Its URL may hold secrets."""
        told = {"tenant": tenant or None, "webhook": webhook_id, "do": done}
        self._tell("webhook", told | ({"parts": list(parts)} if parts else {}))

    def queue(self, name: str, tenant: str | None, done: str) -> None:
        """A caller has declared, changed, emptied or deleted a queue."""
        self._tell("queue", {"tenant": tenant or None, "queue": name, "do": done})

    def fleet_run(self, run_id: str, tenant: str | None, done: str, method: str) -> None:
        """A caller has begun, paused, resumed or aborted a fleet run, or begun it as a `retry` of another."""
        self._tell("fleet", {"tenant": tenant or None, "run": run_id, "do": done, "method": method})

    def schedule(self, name: str, tenant: str | None, done: str) -> None:
        """A caller has put or deleted a schedule."""
        self._tell("schedule", {"tenant": tenant or None, "schedule": name, "do": done})

    def denied(self, why: str, device_id: str) -> None:
        """A caller who is known may not do something with a device."""
        self._refusals += 1
        if self._refusals > REFUSALS:
            self._counters["audit.refusals_not_kept"] += 1
            return
        self._tell("refused", {"why": why}, device_id)

    def _ended(self, command_id: str, state: str, device_id: str | None) -> None:
        """In the row of the command, while that is not in the chain; else by itself."""
        row = self._running.pop(command_id, None)
        if row is not None:
            row += (state, self._now_us())
            return
        tenant = None
        with suppress(UnavailableError):  # a node that has just started ends commands before it has read the rules
            tenant = None if device_id is None else self._tenant_of(device_id) or None
        self._note({"kind": "outcome", "command": command_id, "device": device_id, "tenant": tenant, "state": state})

    def _asker(self, device_id: str) -> int:
        """The number of the caller who asks for something of this device, and whose tenant that is."""
        key = ASKING.get(), self._tenant_of(device_id) or None
        found = self._askers.get(key)
        if found is None:
            found = self._askers[key] = self._block.asker(self._facts_of(*key))
        return found

    def _facts_of(self, asking: RequestOrigin | None, tenant: str | None) -> AuditFact:
        if asking is None:
            return {"tenant": tenant}
        who, key = self._who(asking.caller)
        return {"who": who, "key": key, "tenant": tenant, "from": asking.address, "agent": asking.shown_agent}

    def _tell(self, kind: str, what: Mapping[str, Any], device_id: str | None = None) -> None:
        """Note a fact about something that a caller asks for."""
        asker = self._facts_of(ASKING.get(), self._tenant_of(device_id or "") or None)
        about = {} if device_id is None else {"device": device_id}
        self._note({"kind": kind, **about, **asker, **what})

    def _note(self, what: AuditFact, *, fact: bool = True) -> None:
        if self._has_room():
            now_us = self._now_us()
            self._put({"at": now_us, **what}, now_us, fact=fact)

    def _has_room(self) -> bool:
        """True if there is room for one more fact; if not, the fact is counted as dropped."""
        if self._room > 0:
            return True
        self._dropped += 1
        self._counters["audit.dropped"] += 1
        return False

    def _put(self, told: AuditFact | AuditRow, now_us: int, *, fact: bool = True) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._block.told.append({"at": now_us, "kind": "dropped", "count": dropped})
        self._block.told.append(told)
        self._room -= 1
        self._facts += fact
        if len(self._block.told) >= MANY_IN_LINE:
            self._next_block()

    def _next_block(self) -> None:
        self._blocks.append(self._block)
        self._block, self._askers = AuditBatch(), {}

    def _bind(self) -> None:
        """Put what was told into the chain: from now on it is what it is."""
        self._next_block()
        blocks, self._blocks, self._running = self._blocks, [], {}
        facts, self._facts = self._facts, 0
        self._writer.bind(blocks, facts)
        self._room = self._writer.room

    def _now_us(self) -> int:
        return int(self._wall() * 1_000_000)

    async def run(self) -> None:
        """Write what there is, and tell heads, until cancelled."""
        async with asyncio.TaskGroup() as group:  # what is asked of others must not keep lines waiting
            group.create_task(self._keep_writing())
            group.create_task(self._keep_telling())

    async def _keep_writing(self) -> None:
        pause, expected = self.gap_seconds - SLACK_SECONDS, 0.0
        while True:
            await self._sleep(pause)
            self._refusals = 0
            began = self._clock.monotonic()
            with suppress(UnavailableError, DirectoryError):  # the writer has told the log
                await self._write()
            taken = self._clock.monotonic() - began
            expected = max(taken, _STILL * expected)
            pause = max(0.0, self.gap_seconds - SLACK_SECONDS - expected - taken)

    async def _keep_telling(self) -> None:
        with suppress(UnavailableError, DirectoryError):
            await self._writer.take_over()
        while True:
            await self._sleep(self.heads_seconds)
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
            self._note({"kind": "seen", "seen": seen}, fact=False)
        self._writer.tell_log()

    async def _write(self) -> None:
        self._bind()
        await self._writer.write(self._bind)
        self._room = self._writer.room
