"""A channel of a connection that publishes: messages are appended in the order in which they came, and confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import orjson

from app.api.problems import of_error
from app.api.v1.exchange_messages import receipt_json
from app.core.errors import HomingError
from app.queues.exchange_publisher import KeyedMessage, MessageReceipt
from app.queues.plane import QueuePlane

MOST_BYTES: Final = 1024 * 1024
"""The bound of what is appended at once, where it is several messages."""


@dataclass(frozen=True, slots=True)
class _CalledMessage:
    id: int
    message: KeyedMessage
    answered: Callable[[], None]


class PublishingChannel:
    """A channel that publishes; its caller bounds how many messages are not answered.

    `send` writes a frame, as that of a ConnectChannel.
    """

    def __init__(self, number: int, plane: QueuePlane, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.number: Final = number
        self._plane = plane
        self._send = send
        self._waiting: deque[_CalledMessage] = deque()
        self._changed = asyncio.Event()
        self._ending = False

    def publish(self, number: int, message: KeyedMessage, answered: Callable[[], None]) -> None:
        """Have it appended after those before; `answered` is called when the caller was told what became of it."""
        self._waiting.append(_CalledMessage(number, message, answered))
        self._changed.set()

    def finish(self) -> None:
        """Let `run` return once all is answered."""
        self._ending = True
        self._changed.set()

    async def run(self) -> None:
        """Append what comes, as much at once as is there, and say of each message what became of it."""
        while self._waiting or not self._ending:
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            part = self._next_part()
            for one, outcome in zip(part, await self._publish(part), strict=True):
                await self._send(_answer(one.id, outcome))
                one.answered()

    async def _publish(self, part: list[_CalledMessage]) -> list[MessageReceipt | HomingError]:
        try:
            return await self._plane.publisher.publish_all([one.message for one in part])
        except HomingError as error:
            return [error] * len(part)

    def _next_part(self) -> list[_CalledMessage]:
        part = [self._waiting.popleft()]
        room = MOST_BYTES - len(part[0].message.entry.value)
        while self._waiting and (room := room - len(self._waiting[0].message.entry.value)) >= 0:
            part.append(self._waiting.popleft())
        return part


def _answer(number: int, outcome: MessageReceipt | HomingError) -> bytes:
    if isinstance(outcome, HomingError):
        return problem_frame(number, outcome)
    return orjson.dumps({"id": number, "ok": True, **receipt_json(outcome)})


def problem_frame(number: object, error: HomingError) -> bytes:
    """The answer to a call that failed."""
    return orjson.dumps({"id": number, "problem": orjson.Fragment(bytes(of_error(error).body))})
