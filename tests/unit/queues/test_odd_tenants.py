"""Tenants whose ids have slashes, wildcards or nothing else than the sign for none share neither names nor messages."""

from __future__ import annotations

from itertools import permutations
from typing import Final

import pytest

from app.core.events.event import BEGINNING, Entry
from app.core.queues.exchanges import DeclaredExchange, KeyRoute
from app.core.queues.model import DeclaredQueue, QueueOptions
from app.core.topics import validate_topic
from app.queues.sources import QueueSources, tree_of
from tests.unit.queues.stage import QueueStage

TENANTS: Final = ("", "-", "%2D", "a", "a/b", "a%2Fb", "+", "#", "a/#", "ä b")
NAMES: Final = ("b", "c", "b.c")


def queue_of(tenant: str, name: str) -> DeclaredQueue:
    routes = tuple(KeyRoute("events", one, "#") for one in NAMES)
    return DeclaredQueue(f"id of {tenant}", tenant, name, QueueOptions(routes=routes), {"events": BEGINNING}, 0)


def exchange_of(tenant: str, name: str) -> DeclaredExchange:
    return DeclaredExchange(tenant, name, "topic", "events", 0)


def test_no_two_have_one_document_or_one_topic() -> None:
    queues = [queue_of(tenant, name) for tenant in TENANTS for name in NAMES]
    exchanges = [exchange_of(tenant, name) for tenant in TENANTS for name in NAMES]
    for names in (
        [one.document for one in queues],
        [one.dead_topic for one in queues],
        [one.document for one in exchanges],
        [one.topic_of("c.d") for one in exchanges],
    ):
        assert len(set(names)) == len(names)
    for topic in (*(one.dead_topic for one in queues), *(one.topic_of("c.d") for one in exchanges)):
        assert validate_topic(topic) == topic


@pytest.mark.parametrize(("owner", "other"), [*permutations(TENANTS, 2)])
def test_what_one_says_in_an_exchange_is_for_no_queue_of_another(owner: str, other: str) -> None:
    sources = QueueSources(QueueStage().plan, lambda _: "")
    queue = queue_of(other, "b")
    tree = tree_of("events", [queue])
    for name in NAMES:
        said = Entry(exchange_of(owner, name).topic_of("c.d"), b"1")
        assert not (tree.match(said.topic.split("/")) and sources.may_have(queue, said))
        own = Entry(exchange_of(other, name).topic_of("c.d"), b"1")
        assert tree.match(own.topic.split("/"))
        assert sources.may_have(queue, own)
