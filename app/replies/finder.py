"""Finds what replies speak of besides the message: the last command, last values, and what handlers say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from app.core.commands.command import Command
from app.core.errors import HandlerFailedError, StoreUnavailableError
from app.core.events.event import Entry
from app.core.messages import Publication
from app.core.payload import JsonValue, Missing
from app.core.replies.reply import Candidate, Document
from app.store.commands import CommandReader, Query

COMMANDS: Final = 50
"""Among so many commands of the device, the latest, is the one looked for that a reply speaks of."""
STATE_SECONDS: Final = 2.0
"""The time that the event log may take to tell its last values; then the device has to ask again."""

LastEntry = Callable[[str | None, str], Awaitable[Entry | None]]
"""Tells the last value of a topic in the database that is proposed, if there is any; it may raise HomingError."""


async def no_events(_database: str | None, _topic: str) -> None:
    """The lookup of events on a node that keeps none."""


class Handlers(Protocol):
    """Services of the operator that are asked for what replies are made of."""

    @property
    def in_flight(self) -> int:
        """The number of questions that wait for an answer."""

    async def ask(self, name: str, question: Document) -> JsonValue | Missing:
        """Return the handler's answer, MISSING where it has none; HandlerFailedError."""


class NoHandlers:
    """The handlers of a node for which the operator has named none."""

    in_flight = 0

    async def ask(self, name: str, question: Document) -> JsonValue | Missing:
        """See the port."""
        del name, question
        raise HandlerFailedError("reply_handler_unknown")


class FoundReply(NamedTuple):
    """The reply; or None, and the reason why there is none."""

    reply: Publication | None
    lacking: str = ""


class Finder:
    """Tries the kinds of replies that a message fits one after the other, and looks up what each of them needs."""

    def __init__(self, commands: CommandReader, last_entry: LastEntry, handlers: Handlers) -> None:
        self._commands = commands
        self._last_entry = last_entry
        self._handlers = handlers

    async def first(self, candidates: Sequence[Candidate], device_id: str) -> FoundReply:
        """The first that has all it needs. Raises HomingError, UndecodableMessageError.

        A handler is asked where the reply has all that it needs else. One that fails ends it: no other kind is tried.
        """
        commands: Sequence[Command] | None = None
        lacking = "reply_lacks_values"
        for one in candidates:
            command = None
            if one.spec.last is not None:
                if commands is None:
                    commands = (await self._commands.list_commands(Query(device_id=device_id, limit=COMMANDS))).commands
                command = one.spec.last.among(commands, one.profile, one.document["message"])
                if command is None:
                    continue
            if one.spec.state and not one.know(await self._state(one, device_id)):
                lacking = "reply_lacks_state"
                continue
            if one.spec.handler is not None and not await self._ask(one, one.spec.handler, command):
                continue
            if (reply := one.reply(command)) is not None:
                return FoundReply(reply)
        return FoundReply(None, lacking)

    async def _ask(self, candidate: Candidate, handler: str, command: Document | None) -> bool:
        """Ask the handler; True if it has an answer."""
        if command is not None:
            candidate.document["command"] = command
        if candidate.lacks(besides="handler"):
            return False
        said = await self._handlers.ask(handler, candidate.question())
        if isinstance(said, Missing):
            return False
        candidate.document["handler"] = said
        return True

    async def _state(self, candidate: Candidate, device_id: str) -> dict[str, JsonValue | Missing]:
        wanted = candidate.spec.state
        places = [(one.database, candidate.topic_of(one)) for one in wanted]
        try:
            async with asyncio.timeout(STATE_SECONDS):
                entries = await asyncio.gather(*(self._last_entry(*place) for place in places))
        except TimeoutError:
            raise StoreUnavailableError(f"the event log did not answer within {STATE_SECONDS:g} s") from None
        return {one.name: one.of(entry, device_id) for one, entry in zip(wanted, entries, strict=True)}
