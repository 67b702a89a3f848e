# Made by scripts/unasync.py from _async/consumer.py. Do not edit.
"""A program that consumes queues: a callback for each queue and topic, of one cluster or several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from homing_client._errors import LimitError, UnavailableError, UnreachableError
from homing_client._sync.queues import Message
from homing_client._system import sleep, together
from homing_client._topics import fits

if TYPE_CHECKING:
    from homing_client._sync.client import Homing

Callback = TypeVar("Callback", bound=Callable[[Message], Any])
WAIT: Final = "2s"
"""How long one call waits for an event, so that `stop` is heard."""
AGAIN_SECONDS: Final = 1.0
"""How long a cluster that is away is left alone."""

_log = logging.getLogger("homing_client")


class Consumer:
    """Calls back for each event of its queues. `Homing.consumer()`.

    An event is done when its callback returns, and tried again when the callback raises an exception.
    """

    def __init__(self, clusters: Sequence[Homing], parallel: int, consumer: str) -> None:
        self._clusters = clusters
        self._parallel = parallel
        self._consumer = consumer
        self._callbacks: dict[str, list[tuple[str | None, Callable[[Message], Any]]]] = {}
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

    def run(self) -> None:
        """Consume until `stop` is called. A cluster that is away is asked again, and holds up no other one.

        Everything else that goes wrong with a call, such as a queue that is not there, ends all and is raised.
        """
        self._stopping = False
        works = [
            self._work(homing, queue)
            for homing in self._clusters
            for queue in self._callbacks
            for _ in range(self._parallel)
        ]
        together(works, self.stop)

    def stop(self) -> None:
        """Let `run` return when the callbacks that run now have returned. May be called in a signal handler."""
        self._stopping = True

    def _work(self, homing: Homing, queue: str) -> Callable[[], Any]:
        def work() -> None:
            try:
                while not self._stopping:
                    self._one(homing, queue)
            except BaseException:
                self.stop()
                raise

        return work

    def _one(self, homing: Homing, queue: str) -> None:
        try:
            taken = homing.queue(queue).take(1, wait=WAIT, consumer=self._consumer)
        except (LimitError, UnavailableError, UnreachableError):
            sleep(AGAIN_SECONDS)
            return
        for message in taken:
            self._handle(queue, message)

    def _handle(self, queue: str, message: Message) -> None:
        callback = next(
            (one for topic, one in self._callbacks[queue] if topic is None or fits(topic, message.event.topic)), None
        )
        try:
            if callback is None:
                message.retry()
                return
            with message:
                callback(message)
        except Exception:  # noqa: BLE001 - whatever a callback raises; if no node hears of it, the loan runs out
            _log.exception("queue %s: an event of %s failed, and is tried again", queue, message.event.topic)
