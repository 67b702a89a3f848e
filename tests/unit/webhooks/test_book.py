"""The webhooks as a node knows them: it does not take a command before it knows who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core.errors import InvalidInputError, StoreUnavailableError, UnavailableError
from app.core.webhooks.endpoints import Endpoint, EventType
from app.store.memory.webhooks import MemoryWebhooks
from app.webhooks.book import MOST_NAMED, MOST_OF_TENANT, EndpointBook

ALL = Endpoint(
    id="wh_01M70000000000000000000000",
    tenant="",
    url="https://example.com/hook",
    events=frozenset((EventType.SUCCEEDED,)),
    devices="*",
    methods="*:*",
    created_at=1,
)


class AwayWebhooks(MemoryWebhooks):
    """Answers when it is there."""

    away = True

    async def endpoints(self) -> Sequence[Endpoint]:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().endpoints()


async def test_who_is_told_is_not_known_before_it_was_read_once() -> None:
    """A node that came back while the store was away took commands of which nobody was ever told."""
    hooks = AwayWebhooks(lambda: 1)
    await hooks.put_endpoint(ALL, None)
    book = EndpointBook(hooks, lambda _: "")
    with pytest.raises(StoreUnavailableError):
        await book.refresh()
    with pytest.raises(UnavailableError):
        book.told_of("dock-1", "dji", "take_off")
    hooks.away = False
    await book.refresh()
    assert book.told_of("dock-1", "dji", "take_off") == (ALL.id,)
    hooks.away = True
    with pytest.raises(StoreUnavailableError):
        await book.refresh()
    assert book.told_of("dock-2", "dji", "take_off") == (ALL.id,)


async def test_every_webhook_that_wants_it_is_told_however_many_there_are() -> None:
    """The seventeenth was made, tested and listed, and never heard of anything."""
    hooks = MemoryWebhooks(lambda: 1)
    ids = [f"wh_01M7{number:022}" for number in range(MOST_OF_TENANT)]
    for one in ids:
        await hooks.put_endpoint(replace(ALL, id=one), None)
    book = EndpointBook(hooks, lambda _: "")
    await book.refresh()
    assert sorted(book.told_of("dock-1", "dji", "take_off")) == ids
    named = ids[-MOST_NAMED:]
    assert sorted(book.told_of("dock-1", "dji", "take_off", named)) == ids


async def test_a_webhook_that_was_made_while_nobody_was_asked_for_a_key_hears_of_the_devices_of_all_tenants() -> None:
    """Since the nodes asked for keys, it was told nothing any more, and commands that named it were refused."""
    hooks = MemoryWebhooks(lambda: 1)
    norths = replace(ALL, id="wh_01M70000000000000000000001", tenant="north")
    for one in (ALL, norths):
        await hooks.put_endpoint(one, None)
    book = EndpointBook(hooks, lambda device: "north" if device == "dock-1" else "south")
    await book.refresh()
    assert book.told_of("dock-1", "dji", "take_off") == (ALL.id, norths.id)
    assert book.told_of("dock-2", "dji", "take_off", [ALL.id]) == (ALL.id,)
    with pytest.raises(InvalidInputError):
        book.told_of("dock-2", "dji", "take_off", [norths.id])
