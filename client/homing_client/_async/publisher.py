"""A program that publishes much: messages leave one after the other, and are confirmed as nodes have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from homing_client import _system
from homing_client._answers import problem_of
from homing_client._async.exchanges import AsyncExchanges
from homing_client._async.link import AGAIN_SECONDS, ANSWER_SECONDS, AWAY, LOOK_SECONDS, PATH
from homing_client._async.session import AsyncSession
from homing_client._errors import HomingError, UnreachableError
from homing_client._operations import JsonObject, given
from homing_client._system import AsyncBackground, AsyncInbox, async_sleep
from homing_client._wire import PROBLEM, AsyncDuplex, Reply, UpgradeRefusedError

MOST_FRAME: Final = 1024 * 1024
"""Bytes of one frame that a node reads. A message that is larger is published by a call, which says what is wrong."""
MOST_FAILURES: Final = 64
"""Failures that are kept for `flush`."""
_OPENING: Final = 1


class AsyncSentMessage:
    """A message that was sent. `AsyncMessagePublisher.send()`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._answer = AsyncInbox()
        self._asked = False
        self.arguments: Final = arguments
        """The arguments of `AsyncExchanges.publish`."""
        self.outcome: JsonObject | HomingError | None = None
        """The confirmation, or what went wrong; None while nothing is known."""
        self.sent: Final = _system.monotonic()

    @property
    def is_untold(self) -> bool:
        """True if it failed, and nobody has asked."""
        return isinstance(self.outcome, HomingError) and not self._asked

    async def confirmed(self) -> JsonObject:
        """Return its position, and the queues that get it, once it is durable. Raises what a call would raise.

        UnreachableError: the connection was lost before its confirmation; it may be there or not.
        """
        self._asked = True
        outcome = await self.ended()
        if isinstance(outcome, HomingError):
            raise outcome
        return outcome

    async def ended(self) -> JsonObject | HomingError:
        """Return what became of it, once that is known."""
        while self.outcome is None:
            await self._answer.get(LOOK_SECONDS)
        return self.outcome

    def end(self, outcome: JsonObject | HomingError) -> None:
        """Say what became of it."""
        self.outcome = outcome
        self._answer.put(outcome)


class AsyncMessagePublisher:
    """Publishes to exchanges over one connection, without waiting for each confirmation. `AsyncHoming.publisher()`.

    A context manager: leaving its block waits for all confirmations. Messages of one device, or else of one key, are
    appended in the order in which they were sent, as long as the connection lasts. Where a node offers none, each is a
    call over HTTP.
    """

    def __init__(self, exchanges: AsyncExchanges, session: AsyncSession, in_flight: int) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight: {in_flight} is out of range; allowed: 1 or more")
        self._exchanges = exchanges
        self._session = session
        self._places = AsyncInbox()
        for _ in range(in_flight):
            self._places.put(True)
        self._numbers = count(_OPENING + 1)
        self._unanswered: dict[int, AsyncSentMessage] = {}
        """The unanswered messages on the connection: the code that takes one out says what becomes of it."""
        self._unconfirmed: dict[int, AsyncSentMessage] = {}
        self._failed: list[AsyncSentMessage] = []
        self._duplex: AsyncDuplex | None = None
        self._tried = AsyncInbox()
        self._calls = False
        self._over = False

    async def __aenter__(self) -> Self:
        self._background = AsyncBackground(self._keep)
        try:
            await self._tried.get(ANSWER_SECONDS)
        except BaseException:  # whoever is interrupted here never comes to leave the block
            self._over = True
            self._background.abandon()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._over = True
            await self._say_goodbye()
            await self._background.join()

    async def send(
        self,
        exchange: str,
        key: str,
        data: object,
        *,
        message_id: str | None = None,
        device_id: str | None = None,
        not_before: str | None = None,
        even_unrouted: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncSentMessage:
        """Send a message, as `AsyncExchanges.publish` does, and return before it is confirmed.

        It waits while as many as may be in flight are not confirmed. A message with an `idempotency_key` whose
        connection is lost is published again, by a call: it is there once, though perhaps behind later ones.
        """
        said = given(
            exchange=exchange,
            key=key,
            id=message_id,
            device_id=device_id,
            not_before=not_before,
            mandatory=False if even_unrouted else None,
            idempotency_key=idempotency_key,
        )
        number = next(self._numbers)
        frame = json.dumps({"id": number, "channel": 1, "publish": {**said, "data": data}}, allow_nan=False)
        while await self._places.get(LOOK_SECONDS) is None:
            pass  # the connection ends in time, if nothing is confirmed
        message = AsyncSentMessage(
            {
                "exchange": exchange,
                "key": key,
                "data": data,
                "message_id": message_id,
                "device_id": device_id,
                "not_before": not_before,
                "even_unrouted": even_unrouted,
                "idempotency_key": idempotency_key,
            }
        )
        self._unconfirmed[number] = message
        duplex = self._duplex
        if duplex is None or len(frame) > MOST_FRAME:
            await self._call(number, message)
            return message
        self._unanswered[number] = message
        try:
            await duplex.send(frame)
        except UnreachableError as error:
            await self._lose(number, error)
        return message

    async def flush(self) -> None:
        """Wait until all that was sent is confirmed. Raises the first failure for which nobody has asked."""
        for message in tuple(self._unconfirmed.values()):
            await message.ended()
        failed, self._failed = self._failed, []
        for message in failed:
            if message.is_untold:
                await message.confirmed()

    async def _keep(self) -> None:
        """Keep a connection, as long as nodes offer one."""
        while not (self._calls or self._over):
            try:
                async with self._session.connect(PATH) as duplex:
                    await self._serve(duplex)
            except UpgradeRefusedError as refused:
                self._calls = refused.reply.status < AWAY  # what is wrong, if anything is, a call is told as well
            except HomingError:
                pass  # messages are calls until it is there again
            self._tried.put(None)
            if not (self._calls or self._over):
                await async_sleep(AGAIN_SECONDS)

    async def _serve(self, duplex: AsyncDuplex) -> None:
        lost: HomingError = UnreachableError("the publisher was left before the message was confirmed")
        try:
            await duplex.send(json.dumps({"id": _OPENING, "open": {"channel": 1, "publish": True}}))
            while not self._over:
                text = await duplex.receive(LOOK_SECONDS)
                if text is not None:
                    self._hear(duplex, json.loads(text))
                else:
                    self._check_patience()
        except HomingError as error:
            lost = error
            raise
        finally:
            self._duplex = None
            for number in tuple(self._unanswered):
                await self._lose(number, lost)

    def _hear(self, duplex: AsyncDuplex, frame: JsonObject) -> None:
        number = frame.get("id") or 0
        message = self._unanswered.pop(number, None)
        outcome = _problem(frame["problem"]) if "problem" in frame else None
        if message is not None:
            self._end(number, message, frame if outcome is None else outcome)
        elif number == _OPENING and outcome is None:
            self._duplex = duplex
            self._tried.put(None)
        elif outcome is not None:
            self._calls = self._calls or number == _OPENING  # it is older, and knows no channel that publishes
            raise outcome

    def _check_patience(self) -> None:
        for message in tuple(self._unanswered.values())[:1]:
            if _system.monotonic() - message.sent > ANSWER_SECONDS:
                raise UnreachableError(f"{self._session.url} has confirmed nothing for {ANSWER_SECONDS:.0f} s")

    async def _lose(self, number: int, error: HomingError) -> None:
        """The connection of a message was lost."""
        message = self._unanswered.pop(number, None)
        if message is None:
            return  # it is known what became of it
        if message.arguments["idempotency_key"] is None or self._over:
            self._end(number, message, UnreachableError(f"the connection was lost before the confirmation: {error}"))
        else:
            await self._call(number, message)

    async def _call(self, number: int, message: AsyncSentMessage) -> None:
        outcome: JsonObject | HomingError = UnreachableError("nobody waited for the answer to the message")
        try:
            outcome = await self._exchanges.publish(**message.arguments)
        except HomingError as error:
            outcome = error
        finally:
            self._end(number, message, outcome)

    def _end(self, number: int, message: AsyncSentMessage, outcome: JsonObject | HomingError) -> None:
        if not isinstance(outcome, HomingError):
            outcome = {"position": outcome["position"], "routed": outcome["routed"]}
        elif len(self._failed) < MOST_FAILURES:
            self._failed.append(message)
        message.end(outcome)
        self._unconfirmed.pop(number, None)
        self._places.put(True)

    async def _say_goodbye(self) -> None:
        """Have the node say something, so that whoever listens finds that it is over."""
        duplex = self._duplex
        if duplex is not None:
            with suppress(UnreachableError):
                await duplex.send(json.dumps({"id": 0, "close": {"channel": 1}}))


def _problem(told: JsonObject) -> HomingError:
    error = problem_of(Reply(int(told["status"]), {"content-type": PROBLEM}, json.dumps(told).encode()))
    if not isinstance(error, HomingError):
        raise error
    return error
