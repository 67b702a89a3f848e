"""A receiver of webhooks, and the sender by which a simulated node reaches it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final

import orjson

from app.core.commands.command import Command
from app.core.webhooks.endpoints import SUBSCRIBABLE, Endpoint
from app.core.webhooks.schedule import Reply
from app.core.webhooks.signatures import Signer
from homing_rig.simulation.guards import EPOCH
from homing_rig.simulation.network import Link

ROOT: Final = b"the root of all simulated secrets"
HOOK: Final = Endpoint(
    id="wh_01J00000000000000000000000",
    tenant="",
    url="https://receiver.example/hook",
    events=frozenset(SUBSCRIBABLE),
    devices="*",
    methods="*:*",
    created_at=round(EPOCH * 1e6),
    root=Signer(ROOT).fingerprint,
)
"""It wants to be told of everything."""
_REFUSED: Final = 0.1
_LOST: Final = 0.2
_LONGEST: Final = 0.2
"""The most seconds that it works on a delivery before it replies: a node may die meanwhile."""


class Receiver:
    """It refuses some deliveries, and of some its reply is lost; what comes again it takes."""

    def __init__(self, make_chance: Callable[[str], Random]) -> None:
        self._make_chance = make_chance
        self._attempts = Counter[str]()
        self._told: dict[str, dict[str, None]] = {}
        """The states that were told of each command, each once, by the id of the command."""
        self.unsigned: list[str] = []
        """The ids of events whose signature is wrong."""

    def work(self, event_id: str) -> float:
        """Draw for how many seconds it works on an attempt, after it has taken it."""
        return self._make_chance(f"receiver/{event_id}/{self._attempts[event_id]}").uniform(0.0, _LONGEST)

    def take(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Take a delivery, or refuse it."""
        event_id = headers["webhook-id"]
        self._attempts[event_id] += 1
        drawn = self._make_chance(f"receiver/{event_id}").random() if self._attempts[event_id] == 1 else 1.0
        if drawn < _REFUSED:
            return Reply(503)
        at = int(headers["webhook-timestamp"]) * 1_000_000
        if Signer(ROOT).headers(HOOK, event_id, body, at) != {name: headers[name] for name in _SIGNED}:
            self.unsigned.append(event_id)
        command = orjson.loads(body)["data"]["command"]
        self._told.setdefault(command["id"], {})[command["state"]] = None
        return Reply(None, "the reply was lost") if drawn < _LOST else Reply(204)

    def mistakes(self, commands: Iterable[Command]) -> list[str]:
        """In words: of which of these commands it was not told their outcome, or more than that."""
        found = [f"the signature of {one} is wrong" for one in self.unsigned]
        for one in commands:
            told = list(self._told.get(one.id, ()))
            if one.state.final and told != [one.state.value]:
                found.append(
                    f"the webhook was told {' and '.join(told) or 'nothing'} of {one.id}, which is {one.state}"
                )
        return found


_SIGNED: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")


class SimSender:
    """A `Sender` of one node. What it has sent arrives, also when the node dies before the reply."""

    def __init__(self, receiver: Receiver, way: Link) -> None:
        self._receiver = receiver
        self._way = way

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See the port."""
        del url
        await asyncio.sleep(self._way.delay())
        reply = self._receiver.take(headers, body)
        await asyncio.sleep(self._receiver.work(headers["webhook-id"]) + self._way.delay())
        return reply

    async def close(self) -> None:
        """Nothing to be closed."""
        return
