"""The sentence for a call that comes with a key for another command; nodes of 0.2.0 write some numbers differently."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.api.idempotency import naming_the_difference
from app.commands.send.registrar import CommandRequest
from app.core.errors import IdempotencyMismatchError
from app.core.payload import JsonValue
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import registration
from tests.unit.assembly import ManualClock


@pytest.mark.parametrize(
    ("height", "said"), [(1e16, "another timeout, one_way, if_offline or notify"), (10**16, "another params")]
)
async def test_params_that_0_2_0_wrote_are_read_as_they_were_meant(height: JsonValue, said: str) -> None:
    known = registration(params=b'{"height":1e+16}')
    store = MemoryStateStore(ManualClock())
    await store.register(known)
    error = await naming_the_difference(
        IdempotencyMismatchError(known.command_id),
        CommandRequest(known.device_id, known.method, {"height": height}, timedelta(seconds=10), known.profile),
        store,
        lambda _: True,
    )
    assert str(error).endswith(said)
