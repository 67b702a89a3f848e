# Made by scripts/unasync.py from _async/link.py. Do not edit.
"""The way of a consumer to one cluster: a WebSocket with a channel for each queue, or calls over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from homing_client._answers import problem_of
from homing_client._errors import LimitError, UnavailableError, UnreachableError
from homing_client._operations import JsonObject
from homing_client._sync.queues import Message, settled
from homing_client._sync.session import Session
from homing_client._system import Inbox, sleep
from homing_client._wire import PROBLEM, Duplex, Reply, UpgradeRefusedError

if TYPE_CHECKING:
    from homing_client._sync.client import Homing

PATH: Final = "/v1/connect"
WAIT: Final = "2s"
"""The time that one call waits for an event, so that `stop` is heard."""
WAIT_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.5
"""The time that one look at the connection waits, likewise."""
ANSWER_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 1.0
"""The time for which a cluster that is away is left alone."""
AWAY: Final = 500
"""Statuses from here on are of nodes that may serve later."""


class Link:
    """Hands `workers` on each queue what they are lent; `run` has to run meanwhile."""

    def __init__(self, homing: Homing, session: Session, queues: Sequence[str], workers: int, consumer: str) -> None:
        self._homing = homing
        self._session = session
        self._queues = tuple(queues)
        self._workers = workers
        self._consumer = consumer or session.consumer
        self._inboxes = {queue: Inbox() for queue in queues}
        self._answers: dict[int, Inbox] = {}
        self._numbers = count(len(queues) + 1)
        self._duplex: Duplex | None = None
        self._polls = False

    def take(self, queue: str) -> list[Message]:
        """One event, or none in time."""
        if self._polls:
            return self._homing.queue(queue).take(1, wait=WAIT, consumer=self._consumer)
        message = self._inboxes[queue].get(WAIT_SECONDS)
        return [] if message is None else [message]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Keep the connection until it is over. Where a node has none, workers call it over HTTP from then on."""
        while not (self._polls or is_over()):
            try:
                with self._session.connect(PATH) as duplex:
                    self._serve(duplex, is_over)
            except UpgradeRefusedError as refused:
                self._polls = refused.reply.status < AWAY  # what is wrong, if anything is, a call is told as well
                if self._polls:
                    return
            except (LimitError, UnavailableError, UnreachableError):
                pass
            if not is_over():
                sleep(AGAIN_SECONDS)

    def settle(self, queue: str, said: Mapping[str, Any]) -> JsonObject:
        """Settle on the connection. Loans know no connection: where it has ended, it is said over HTTP."""
        duplex, number, answer = self._duplex, next(self._numbers), Inbox()
        if duplex is not None:
            self._answers[number] = answer
            try:
                duplex.send(json.dumps({"id": number, "channel": self._queues.index(queue) + 1, **said}))
                told: JsonObject | None = answer.get(ANSWER_SECONDS)
            except UnreachableError:
                told = None
            finally:
                self._answers.pop(number, None)
            if told is not None and "problem" not in told:
                return told
        return settled(self._session, queue, said)

    def _serve(self, duplex: Duplex, is_over: Callable[[], bool]) -> None:
        try:
            for number, queue in enumerate(self._queues, start=1):
                channel = {"channel": number, "queue": queue, "prefetch": self._workers, "consumer": self._consumer}
                duplex.send(json.dumps({"id": number, "open": channel}))
            self._duplex = duplex
            while not is_over():
                text = duplex.receive(LOOK_SECONDS)
                if text is not None:
                    self._hear(json.loads(text))
        finally:
            self._duplex = None
            for inbox in self._inboxes.values():
                inbox.clear()  # the node has given it to others
            for answer in tuple(self._answers.values()):
                answer.put(None)

    def _hear(self, frame: JsonObject) -> None:
        answer = self._answers.get(frame.get("id") or 0)
        if answer is not None:
            answer.put(frame)
        elif "events" in frame:
            queue = self._queues[int(frame["channel"]) - 1]
            for told in frame["events"]:
                self._inboxes[queue].put(Message(self._session, queue, told, self.settle))
        elif "problem" in frame or "closed" in frame:
            problem = frame.get("problem") or frame["closed"]
            raise problem_of(Reply(int(problem["status"]), {"content-type": PROBLEM}, json.dumps(problem).encode()))
