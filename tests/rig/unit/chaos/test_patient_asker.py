"""Questions to a node that recovers, and the reader of events who asks them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from app.mqtt.options import MqttOptions
from homing_rig.chaos.kept_events import DATABASES, Kept, stale_values
from homing_rig.chaos.patient_asker import PatientAsker
from homing_rig.talkers import Talkers

TOPIC = "homing/SN1/event"
PAGES = 3


class RecoveringNode:
    """Answers with these statuses first, and then as a node does that has a page for each event."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)

    def _answer(self, body: dict[str, Any]) -> web.Response:
        status = self._statuses.pop(0) if self._statuses else 200
        return web.json_response(body if status == 200 else {"type": "about:blank"}, status=status)

    async def events(self, request: web.Request) -> web.Response:
        if request.query["database"] != DATABASES[0]:
            return self._answer({"events": [], "cursor": "", "more": False})
        number = int(request.query.get("cursor", "0"))
        event = {"topic": TOPIC, "position": number, "data": {"n": number}}
        return self._answer({"events": [event], "cursor": str(number + 1), "more": number + 1 < PAGES})

    async def value(self, _request: web.Request) -> web.Response:
        return self._answer({"data": {"n": PAGES - 1}})

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/v1/events", self.events)
        application.router.add_get("/v1/state/{topic}", self.value)
        async with TestServer(application) as server:
            yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def asker(patience: float = 60.0) -> AsyncIterator[PatientAsker]:
    async with aiohttp.ClientSession() as http:
        yield PatientAsker(http, patience)


@pytest.mark.parametrize("statuses", [(503,), (200, 503, 503), (200, 200, 504)])
async def test_a_reader_goes_on_where_it_was_when_a_node_that_recovers_does_not_answer(statuses: Sequence[int]) -> None:
    async with RecoveringNode(*statuses).served() as url, asker() as asks:
        kept = Kept()
        await kept.read(asks, url)
        assert list(kept.numbers[TOPIC]) == [0, 1, 2], "nothing is left out, and nothing is there twice"
        assert asks.again == len(statuses) - statuses.count(200)


async def test_a_node_that_stays_away_is_an_error() -> None:
    async with RecoveringNode(503, 503).served() as url, asker(patience=0.0) as asks:
        with pytest.raises(aiohttp.ClientResponseError, match="503"):
            await Kept().read(asks, url)
    async with asker(patience=0.0) as asks:
        with pytest.raises(aiohttp.ClientConnectionError):
            await Kept().read(asks, url)  # nobody listens there any more


async def test_a_refusal_is_no_recovery() -> None:
    async with RecoveringNode(403).served() as url, asker() as asks:
        with pytest.raises(aiohttp.ClientResponseError, match="403"):
            await Kept().read(asks, url)
        assert asks.again == 0


async def test_a_last_value_is_not_stale_because_the_node_recovers() -> None:
    talkers = Talkers(lambda client_id: MqttOptions(client_id=client_id, host="127.0.0.1"), [TOPIC])
    talkers.said[TOPIC] = PAGES
    async with RecoveringNode(503).served() as url, asker() as asks:
        assert await stale_values(asks, url, talkers) == 0
        assert asks.again == 1
    async with RecoveringNode(404).served() as url, asker() as asks:
        assert await stale_values(asks, url, talkers) == 1
