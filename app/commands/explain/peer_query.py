"""Asks the other nodes what they know of a command, over their channels.

An answer is believed when it names the question, whose name nobody can guess. Who answers not in time is said to be
missing: the answer of a question is whatever came until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson
import structlog

from app.cluster.cluster import Cluster
from app.core.commands.diagnosis import DeviceSighting, Hop, NodeReport
from app.core.commands.misses import MissedMessage, Target
from app.core.errors import CapacityError, HomingError
from app.core.identifiers import validate_node_id
from app.runtime.telemetry import Counters

PATIENCE_SECONDS: Final = 0.5
MOST_AT_ONCE: Final = 20
"""Questions that this node asks, and answers that it is writing."""
MOST_BYTES: Final = 65_536

Notes = Callable[[str, Target], NodeReport]
"""What this node knows."""


class PeerQuery:
    """`notes` are this node's own; `new_secret` names questions."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        node_id: str,
        notes: Notes,
        new_secret: Callable[[], str],
        counters: Counters,
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._notes = notes
        self._new_secret = new_secret
        self._counters = counters
        self._questions: dict[str, tuple[dict[str, NodeReport], asyncio.Event, int]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    async def ask(self, command_id: str, target: Target) -> tuple[Sequence[NodeReport], Sequence[str]]:
        """What the nodes know, this one first, and the ids of those that did not answer.

        StoreUnavailableError; CapacityError when too much is asked at once.
        """
        if len(self._questions) >= MOST_AT_ONCE:
            raise CapacityError(f"{MOST_AT_ONCE} explanations are under way on this node already")
        own = self._notes(command_id, target)
        others = [one.node_id for one in await self._cluster.nodes() if one.node_id != self._node_id]
        if not others:
            return [own], ()
        name, told, complete = self._new_secret(), dict[str, NodeReport](), asyncio.Event()
        self._questions[name] = told, complete, len(others)
        question = orjson.dumps({"ask": name, "from": self._node_id, "command": command_id, "about": asdict(target)})
        try:
            await asyncio.gather(*(self._cluster.note(one, question) for one in others))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await complete.wait()
        except TimeoutError:
            self._counters["explain.unanswered"] += 1
        finally:
            del self._questions[name]
        return [own, *told.values()], [one for one in others if one not in told]

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
        question = self._questions.get(said["tell"])
        if question is None:
            return
        told, complete, wanted = question
        node = str(said["node"])
        told[node] = NodeReport(
            node,
            [Hop(**one) for one in said["hops"]],
            [MissedMessage(**one) for one in said["misses"]],
            [DeviceSighting(**one) for one in said["heard"]],
        )
        if len(told) >= wanted:
            complete.set()

    def _answer(self, said: dict[str, Any]) -> None:
        asker = validate_node_id(said["from"])
        told = self._notes(str(said["command"]), Target(**said["about"]))
        answer = orjson.dumps(asdict(told) | {"tell": str(said["ask"])})
        if len(self._answering) >= MOST_AT_ONCE:
            self._counters["drop.note_over_budget"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._send(asker, answer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send(self, asker: str, answer: bytes) -> None:
        try:
            await self._cluster.note(asker, answer)
        except HomingError as error:
            self._log.debug("question_not_answered", reason=str(error))
