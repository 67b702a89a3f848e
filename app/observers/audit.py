"""This node's part of the audit: who asked what of which device and how it ended, written to the database in batches.

Nothing waits for it. While the database is away lines are kept in memory, up to a bound; what is over it is dropped,
and a line says how many were. Params and secrets are in no line.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import orjson
import structlog

from app.access.asking import ASKING
from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.access.callers import Caller
from app.core.audit import DIRECTORY, Chain, Columns, Head
from app.core.callback import Answer, Registration
from app.core.clock import Clock
from app.core.errors import DirectoryError, UnavailableError
from app.core.routing import Outcome, Recorded, Verdict
from app.observability import Counters, Fill
from app.store.audit import AuditStore, Kept

BATCH: Final = 1_000
"""Lines of one call: a call costs as much as some hundred lines."""
PAUSE_SECONDS: Final = 0.5
"""How long a line waits for others."""
HEADS_SECONDS: Final = 10.0
"""How often heads are told to the log and to the other writers."""
MOST_LINES: Final = 200_000
MOST_BYTES: Final = 64 * 2**20
"""Of lines that wait for the database."""
MOST_HEADS: Final = 100
"""The latest ones, of which one line tells."""
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
        store: AuditStore,
        clock: Clock,
        counters: Counters,
        *,
        commands: bool,
        required: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._commands = commands
        self._required = required
        self._who: Who = lambda _: (None, None)
        self._tenant_of: Callable[[str], str | None] = lambda _: None
        self._chain = Chain("")
        self._told: Final[list[dict[str, Any]]] = []
        """What is not in the chain yet."""
        self._running: Final[dict[str, dict[str, Any]]] = {}
        """Of that, the commands without outcome."""
        self._lines: Final[deque[Kept]] = deque()
        self._bytes = 0
        self._facts = 0
        self._dropped = 0
        self._refusals = 0
        self._seen: dict[str, int] = {}
        self._logged = 0
        self._trouble = ""
        self._log = structlog.get_logger()

    def begin(self, writer: str, who: Who, tenant_of: Callable[[str], str | None]) -> None:
        """Write as this writer from now on."""
        self._chain, self._who, self._tenant_of = Chain(writer), who, tenant_of

    def queues(self) -> dict[str, Fill]:
        """How many lines wait for the database."""
        return {"audit": Fill(len(self._told) + len(self._lines), MOST_LINES)}

    @property
    def health(self) -> str:
        """`ok`, or a sentence."""
        return self._trouble or "ok"

    def check(self) -> None:
        """UnavailableError when commands must be on record, and nothing can be written."""
        if self._required and (self._trouble or self._is_full()):
            raise UnavailableError(f"commands must be on record, and the audit cannot be written: {self._trouble}")

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
        if recorded.waiting and not self._chain.head.writer.startswith(f"{recorded.waiting[0]}/"):
            self._ended(outcome.command_id, outcome.state.value, answer.device_id)

    def cancelled(self, command_id: str, device_id: str) -> None:
        """A caller has cancelled a command."""
        self._tell("cancel", self._asker(device_id) | {"command": command_id, "device": device_id})

    def denied(self, why: str, device_id: str) -> None:
        """A caller who is known may not do something with a device."""
        self._refusals += 1
        if self._refusals > REFUSALS:
            self._counters["audit.refusals_not_kept"] += 1
            return
        self._tell("refused", self._asker(device_id) | {"device": device_id, "why": why})

    def _asked(self, kind: str, registration: Registration) -> dict[str, Any] | None:
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

    def _asker(self, device_id: str) -> dict[str, Any]:
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

    def _tell(self, kind: str, facts: dict[str, Any], *, fact: bool = True) -> bool:
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
        told = self._told.copy()
        self._told.clear()
        self._running.clear()
        for one in told:
            line = self._chain.append(orjson.dumps(one))
            self._lines.append(Kept(line, Columns(one["at"], one.get("who"), one.get("device"), one.get("tenant"))))
            self._bytes += len(line.body)

    def _is_full(self) -> bool:
        return len(self._told) + len(self._lines) >= MOST_LINES or self._bytes >= MOST_BYTES

    def _now_us(self) -> int:
        return int(self._clock.wall() * 1_000_000)

    async def run(self) -> None:
        """Write what there is, and tell heads, until cancelled."""
        told_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            self._refusals = 0
            try:
                await self._write()
                if self._clock.monotonic() - told_at >= HEADS_SECONDS:
                    told_at = self._clock.monotonic()
                    await self.tell_heads()
            except (UnavailableError, DirectoryError) as error:
                self._fail(error)

    async def close(self) -> None:
        """Write everything, and tell the head."""
        await self._write()
        self._tell_log()

    async def tell_heads(self) -> None:
        """Put the heads of the others into this chain, and this head into the log."""
        heads = (await self._store.heads())[:MOST_HEADS]
        own = self._chain.head.writer
        news = [(head, facts) for head, facts in heads if head.writer != own and facts > self._seen.get(head.writer, 0)]
        if news:
            self._tell("seen", {"seen": [[one.writer, one.seq, one.hash.hex()] for one, _ in news]}, fact=False)
            self._seen.update({head.writer: facts for head, facts in news})
            for head, _ in news:
                if head.writer == DIRECTORY:
                    self._log_head(head)
        self._tell_log()

    def _tell_log(self) -> None:
        if self._facts > self._logged:
            self._logged = self._facts
            self._log_head(self._chain.head)

    def _log_head(self, head: Head) -> None:
        self._log.info("audit_head", writer=head.writer, seq=head.seq, hash=head.hash.hex())

    async def _write(self) -> None:
        self._bind()
        while self._lines:
            batch = list(islice(self._lines, BATCH))
            await self._store.append(batch, self._facts)
            self._forget(batch)
            self._trouble = ""

    def _forget(self, batch: Sequence[Kept]) -> None:
        for kept in batch:
            self._lines.popleft()
            self._bytes -= len(kept.line.body)
        self._counters["audit.written"] += len(batch)

    def _fail(self, error: Exception) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warning("audit_not_written", reason=self._trouble, waiting=len(self._lines))
