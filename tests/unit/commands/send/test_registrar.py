"""The registration of a command: texts that nodes of two versions have to write alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b

from app.core.commands.callback import Registration
from app.core.commands.routing import Outcome
from app.core.payload import JsonValue
from app.store.commands import Joined, Registered
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import WAKE_KEY, ManualClock, assemble, request


async def test_a_key_stands_for_the_params_as_0_2_0_writes_them() -> None:
    seen: list[Registration] = []

    class Noting(MemoryStateStore):
        async def register(self, registration: Registration) -> Registered | Joined:
            seen.append(registration)
            return await super().register(registration)

    def noting(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
        return Noting(clock, wake=wake, wake_key=WAKE_KEY)

    params: JsonValue = {"height": 1e16, "name": "ä", "near": [0.00001, -0.0, 2**64 - 1, None]}
    member = (await assemble(make_store=noting)).members[0]
    await member.invoker.invoke(request(params=params, idempotency_key="once"), park=False)
    told = json.dumps(["blink", params, "homing", False, 10.0], ensure_ascii=False, separators=(",", ":"))
    assert seen[0].fingerprint == blake2b(told.encode(), digest_size=16).hexdigest()
    assert json.loads(seen[0].params) == params
