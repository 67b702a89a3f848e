"""Asks the other nodes what they know, over their channels.

An answer is believed when it names the question, whose name nobody can guess. A node that does not answer in time is
silent: the answer of a question is whatever came until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson
import structlog

from app.cluster.cluster import Cluster
from app.core.errors import CapacityError, HomingError
from app.core.identifiers import validate_node_id
from app.runtime.telemetry import Counters

PATIENCE_SECONDS: Final = 0.5
MOST_AT_ONCE: Final = 20
"""Questions that this node asks, and answers that it is writing."""
MOST_BYTES: Final = 65_536

Told = TypeVar("Told")
Question = Mapping[str, Any]
"""The members of a JSON object. The first one that a node has an answer for is the subject, whatever comes behind."""
Answerer = Callable[[Question], Awaitable[Mapping[str, Any]]]
"""Answers a question with a JSON object; HomingError, ValueError, TypeError or KeyError for one that is none."""


@dataclass(frozen=True, slots=True)
class _OpenQuestion:
    """A question under way."""

    wanted: int
    read: Callable[[Mapping[str, Any]], object]
    told: dict[str, Any] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class PeerQuery:
    """`new_secret` names questions. Each subject registers in `answers` how this node answers about it."""

    def __init__(self, *, cluster: Cluster, node_id: str, new_secret: Callable[[], str], counters: Counters) -> None:
        self.answers: Final[dict[str, Answerer]] = {}
        self._cluster = cluster
        self._node_id = node_id
        self._new_secret = new_secret
        self._counters = counters
        self._questions: dict[str, _OpenQuestion] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    async def ask(
        self, question: Question, read: Callable[[Mapping[str, Any]], Told]
    ) -> tuple[Mapping[str, Told], Sequence[str]]:
        """The answers of the other nodes by node id, and the ids of those that did not answer.

        `read` makes an answer of its JSON; it may raise ValueError, TypeError or KeyError. StoreUnavailableError;
        CapacityError when too much is asked at once.
        """
        if len(self._questions) >= MOST_AT_ONCE:
            raise CapacityError(f"{MOST_AT_ONCE} questions to other nodes are under way on this node already")
        others = [one.node_id for one in await self._cluster.nodes() if one.node_id != self._node_id]
        if not others:
            return {}, ()
        name, asked = self._new_secret(), _OpenQuestion(len(others), read)
        self._questions[name] = asked
        data = orjson.dumps({"ask": name, "from": self._node_id, **question})
        try:
            await asyncio.gather(*(self._cluster.note(one, data) for one in others))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asked.complete.wait()
        except TimeoutError:
            self._counters["explain.unanswered"] += 1
        finally:
            del self._questions[name]
        return asked.told, [one for one in others if one not in asked.told]

    def noted(self, what: bytes) -> None:
        """Take a question or an answer; what is neither is counted."""
        try:
            said: dict[str, Any] = orjson.loads(what[:MOST_BYTES])
            if "tell" in said:
                self._take(said)
            else:
                self._answer(said)
        except (HomingError, ValueError, TypeError, KeyError):
            self._counters["drop.bad_note"] += 1

    def _take(self, said: dict[str, Any]) -> None:
        asked = self._questions.get(said["tell"])
        if asked is None:
            return
        asked.told[str(said["node"])] = asked.read(said)
        if len(asked.told) >= asked.wanted:
            asked.complete.set()

    def _answer(self, said: dict[str, Any]) -> None:
        asker, name = validate_node_id(said["from"]), str(said["ask"])
        answerer = next((self.answers[one] for one in said if one in self.answers), None)
        if answerer is None:
            raise KeyError("subject")
        if len(self._answering) >= MOST_AT_ONCE:
            self._counters["drop.note_over_budget"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._send(asker, name, answerer(said)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send(self, asker: str, name: str, answer: Awaitable[Mapping[str, Any]]) -> None:
        try:
            told = await answer
        except (HomingError, ValueError, TypeError, KeyError):
            self._counters["drop.bad_note"] += 1
            return
        try:
            await self._cluster.note(asker, orjson.dumps({**told, "node": self._node_id, "tell": name}))
        except HomingError as error:
            self._log.debug("question_not_answered", reason=str(error))
