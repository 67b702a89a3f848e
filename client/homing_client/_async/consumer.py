"""A program that consumes queues: a callback for each queue and topic, of one cluster or several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from homing_client._async.link import AGAIN_SECONDS, AsyncLink
from homing_client._async.queues import AsyncMessage
from homing_client._errors import LimitError, UnavailableError, UnreachableError
from homing_client._system import async_sleep, async_together
from homing_client._topics import fits

if TYPE_CHECKING:
    from homing_client._async.client import AsyncHoming

Callback = TypeVar("Callback", bound=Callable[[AsyncMessage], Any])

_log = logging.getLogger("homing_client")


class AsyncConsumer:
    """Calls back for each event of its queues. `AsyncHoming.consumer()`.

    An event is done when its callback returns, and tried again when the callback raises an exception. Nodes push what
    there is over one connection for each cluster; where one offers none, it is asked over HTTP.
    """

    def __init__(self, clusters: Sequence[AsyncHoming], parallel: int, consumer: str) -> None:
        self._clusters = clusters
        self._parallel = parallel
        self._consumer = consumer
        self._callbacks: dict[str, list[tuple[str | None, Callable[[AsyncMessage], Any]]]] = {}
        self._stopping = False

    def on(self, queue: str, *, topic: str | None = None) -> Callable[[Callback], Callback]:
        """Register the decorated function for events of a queue, or for those whose topic matches a filter.

        Of several functions that fit, the first one that was registered is called. An event that none fits is tried
        again as the queue says: it may be for another program.
        """

        def register(callback: Callback) -> Callback:
            self._callbacks.setdefault(queue, []).append((topic, callback))
            return callback

        return register

    async def run(self) -> None:
        """Consume until `stop` is called. A cluster that is away is asked again, and holds up no other one.

        Everything else that goes wrong with a call, such as a queue that is not there, ends all and is raised.
        """
        self._stopping = False
        works: list[Callable[[], Any]] = []
        for homing in self._clusters:
            link = homing.link(tuple(self._callbacks), self._parallel, self._consumer)
            at_work = {(queue, place) for queue in self._callbacks for place in range(self._parallel)}
            works += [self._work(link, one, at_work) for one in tuple(at_work)]
            works.append(self._keep(link, at_work))
        await async_together(works, self.stop)

    def stop(self) -> None:
        """Let `run` return when the callbacks that run now have returned. May be called in a signal handler."""
        self._stopping = True

    def _keep(self, link: AsyncLink, at_work: set[tuple[str, int]]) -> Callable[[], Any]:
        """Keep the way to a cluster until nobody works any more."""

        async def keep() -> None:
            try:
                await link.run(lambda: self._stopping and not at_work)
            except BaseException:
                self.stop()
                raise

        return keep

    def _work(self, link: AsyncLink, place: tuple[str, int], at_work: set[tuple[str, int]]) -> Callable[[], Any]:
        async def work() -> None:
            try:
                while not self._stopping:
                    await self._one(link, place[0])
            except BaseException:
                self.stop()
                raise
            finally:
                at_work.discard(place)

        return work

    async def _one(self, link: AsyncLink, queue: str) -> None:
        try:
            taken = await link.take(queue)
        except (LimitError, UnavailableError, UnreachableError):
            await async_sleep(AGAIN_SECONDS)
            return
        for message in taken:
            await self._handle(queue, message)

    async def _handle(self, queue: str, message: AsyncMessage) -> None:
        callback = next(
            (one for topic, one in self._callbacks[queue] if topic is None or fits(topic, message.event.topic)), None
        )
        try:
            if callback is None:
                await message.retry()
                return
            async with message:
                await callback(message)
        except Exception:  # noqa: BLE001 - whatever a callback raises; if no node hears of it, the loan runs out
            _log.exception("queue %s: an event of %s failed, and is tried again", queue, message.event.topic)
