"""Commands are found by the idempotency key that they stand for, in every state store."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.commands.command import CommandState
from app.store.commands import Query
from app.store.state import StateStore
from tests.contract.store_backends import registration


async def found(store: StateStore, device: str, key: str, state: CommandState | None = None) -> Sequence[str]:
    page = await store.list_commands(Query(device_id=device, idempotency_key=key, state=state))
    assert page.cursor is None
    return [one.id for one in page.commands]


async def test_a_command_is_found_by_the_key_of_its_device(store: StateStore) -> None:
    one = registration("dock-1", key="order-1", fingerprint="f")
    other = registration("dock-2", key="order-1", fingerprint="f")
    for each in (one, other, registration("dock-1")):
        await store.register(each)
    assert await found(store, "dock-1", "order-1") == [one.command_id]
    assert await found(store, "dock-2", "order-1") == [other.command_id]
    assert await found(store, "dock-3", "order-1") == await found(store, "dock-1", "order-2") == []
    assert await found(store, "dock-1", "order-1", CommandState.PENDING) == [one.command_id]
    assert await found(store, "dock-1", "order-1", CommandState.FAILED) == []
    await store.finish(one.command_id, CommandState.CANCELLED, "node-a")
    assert await found(store, "dock-1", "order-1") == [one.command_id]


async def test_a_key_that_is_free_again_leads_to_the_later_command(store: StateStore) -> None:
    one, again = (registration("dock-1", key="order-1", fingerprint="f") for _ in range(2))
    await store.register(one)
    await store.finish(one.command_id, CommandState.UNSENT, "node-a")
    assert await found(store, "dock-1", "order-1") == [one.command_id]
    await store.register(again)
    assert await found(store, "dock-1", "order-1") == [again.command_id]
