"""The commands of all nodes on record, the truth about each: one port to read them, one to change them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Protocol

from app.core.access.patterns import expression
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import Outcome, Recorded
from app.core.profiles.probes import ProbeFinding
from app.core.values import value


@value
class Registered:
    """The command is on record and waits: with `held` to be sent, else for its answer.

    Instants are microseconds since the epoch on the store's clock.
    """

    created_at: int
    deadline: int
    held: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """The idempotency key belongs to this command already; nothing was registered.

    While the command has no outcome, the asking node is among those to wake (up to four of them; any
    further ones learn of the outcome by reading).
    """

    command: Command


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of an attempt to end a command: `won` tells whether this attempt made the outcome."""

    won: bool
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Query:
    """The commands to list, newest first. `cursor` is what the page before gave.

    With `idempotency_key` only the one that this key of the device stands for; `device_id` is needed then.
    """

    device_id: str | None = None
    state: CommandState | None = None
    limit: int = 50
    cursor: str | None = None
    idempotency_key: str | None = None
    method: str | None = None
    """A pattern, as `validate_pattern` gives it; `*` is any text. So is `profile`."""
    profile: str | None = None
    since_us: int | None = None
    """Only commands that were created then or later, and until `until_us` or earlier, by the store's clock."""
    until_us: int | None = None

    def wants(self, command: Command) -> bool:
        """True if the command is one of them, wherever pages are."""
        return (
            self.device_id in (None, command.device_id)
            and self.state in (None, command.state)
            and (self.method is None or _expression(self.method).fullmatch(command.method) is not None)
            and (self.profile is None or _expression(self.profile).fullmatch(command.profile) is not None)
            and (self.since_us is None or command.created_at >= self.since_us)
            and (self.until_us is None or command.created_at <= self.until_us)
        )

    @property
    def looks_on(self) -> bool:
        """True if commands between the first and the last of a page may be none of them."""
        return any(one is not None for one in (self.state, self.method, self.profile))


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(expression(pattern))


@dataclass(frozen=True, slots=True)
class CommandSlice:
    """A page of commands; `cursor` is None on the last one. A page may be short, or empty, without being the last."""

    commands: Sequence[Command]
    cursor: str | None


class CommandReader(Protocol):
    """The reader of what is on record; nothing changes by reading.

    Common to both ports: a command whose retention has ended does not exist. What a later version of Homing has
    written, or what is damaged, is left alone and counted as `drop.unreadable_record`; where a single command is meant,
    UnreadableRecordError is raised (by `respond` StoreRefusedError, as another node may read it).
    StoreUnavailableError is raised when the store did not answer within the call's budget.
    """

    async def now(self) -> int:
        """The store's clock, by which all its instants are given: microseconds since the epoch."""

    async def date(self) -> int:
        """The time by which instants count that people name: `now`, or the clock on the wall where it was set ahead."""

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        """Read commands, in order; None where there is none, or one that this node cannot read."""

    async def read(self, command_id: str) -> Command:
        """Read one. CommandNotFoundError; UnreadableRecordError when it is of a later version, or damaged."""

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        """The outcomes of those commands that have one; None for open ones, and where this node cannot read it now.

        A command that is not on record any more counts as TIMED_OUT with error code `gone`, so that nobody waits for
        it for ever.
        """

    async def list_commands(self, query: Query) -> CommandSlice:
        """A page of commands, newest first within a device; across devices newest first as well."""

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        """Open commands whose home is `node_id`, soonest deadline first: what a restarted node takes up again."""


class CommandWriter(Protocol):
    """Every operation is atomic for its command and safe to repeat; see `CommandReader` for what both have in common.

    After StoreUnavailableError the step may have happened, and repeating it is harmless.
    """

    async def register(self, registration: Registration) -> Registered | Joined:
        """Put record, topic index, correlations, deadline and idempotency key in place in one step.

        Repeating it with the same command id answers with the first deadline. A key that stands for an UNSENT command
        is free, and stands for this one from now on. IdempotencyMismatchError: the key is known with another
        fingerprint. DeviceBusyError: a Correlation.ORDER topic is occupied, or a
        Correlation.VALUE names an open command already, or its lane is taken and it has no hold. CapacityError: the
        store is full. TooManyHeldError: no more can wait. In a lane of the order LATEST it takes the place of another
        that waits, which is CANCELLED, and whose waiting nodes are all woken.
        """

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        """Match a response, settle the command and wake the waiting nodes other than `receiver`.

        Of several responses exactly one wins. An open command takes the answer's state, result and error; index entries
        and deadline go; a Correlation.VALUE names the command until its retention ends or another one takes it, so that
        a repeated response is known for what it is. A reading of another profile than the command's is no match. The
        first later final answer of one that timed out, was cancelled, was not sent or was settled by a probe is
        annexed. With `open_only` a command that has its outcome is left as it is (FINISHED); where this very step has
        made it, it is a DUPLICATE.
        Waits for an absent store as long as it takes: the caller holds an unacknowledged message.
        """

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        """End an open command as TIMED_OUT, CANCELLED, UNSENT or SUCCEEDED (one-way); wake all but `finisher`.

        When it has an outcome already, that one is returned with `won` false. CommandNotFoundError when there is none.
        IllegalTransitionError when its state does not allow this end: what was acknowledged is not UNSENT, nor is what
        another node than `finisher` has marked as its own to send, or has claimed. With `only_held`, nothing but what
        is held is ended.
        """

    async def confirm(self, command_id: str, finding: ProbeFinding, finder: str) -> Finished:
        """Settle an open command by what a probe found in the state of its device; wake all but `finder`.

        When it has an outcome already, that one is returned with `won` false. CommandNotFoundError when there is none.
        IllegalTransitionError for one that is held, that waits for no response, or whose deadline has passed.
        """

    async def verify(self, command_id: str, finding: ProbeFinding) -> bool:
        """Annex to a command that has timed out what a probe found of it since; false when that was done already.

        CommandNotFoundError. IllegalTransitionError for one that has not timed out, or was answered late.
        """

    async def mark(self, command_id: str, state: CommandState, sender: str | None = None) -> bool:
        """Note that an open command is SENT or ACKNOWLEDGED; no state goes backwards, the unknown is ignored.

        Whether it was noted. With `sender`, a node takes it over to send it: of several only the first gets true, and
        that one again when it repeats the call.
        """

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        """Time out what is past its deadline by more than `grace`, and drop index entries whose record is gone.

        At most 100 commands a partition and call. Returns the outcomes that this call made.
        """


class CommandStore(CommandReader, CommandWriter, Protocol):
    """Both, for those who read and write."""
