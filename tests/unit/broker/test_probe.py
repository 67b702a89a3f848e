"""Figures that `homing doctor` reads of the broker in a node, and other brokers do not have."""

from __future__ import annotations

import asyncio

import pytest

from app import __version__
from app.core.broker import takeovers
from app.mqtt.options import MqttOptions
from app.mqtt.paho_probe import BrokerFacts, Needs, probe
from app.runtime.system import SystemClock
from tests.broker import RunningBroker, running_broker
from tests.waiting import eventually


class JumpingClock(SystemClock):
    """A clock that somebody sets."""

    ahead = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.listener.TICK_SECONDS", 0.02)
    monkeypatch.setattr("app.core.broker.figures.INTERVAL_SECONDS", 0.0)


async def seen(running: RunningBroker) -> BrokerFacts:
    options = MqttOptions.from_url(running.url, client_id="doctor")
    return await asyncio.to_thread(probe, options, SystemClock().monotonic, "run", Needs())


async def test_trouble_that_only_the_broker_knows_is_read() -> None:
    clock = JumpingClock()
    async with running_broker(clock=clock) as running:
        for _ in range(takeovers.LOOP):
            running.broker.take_overs.note("twin")
        clock.ahead = 7_200.0
        await eventually(lambda: len(running.broker.retained) > 14)
        facts = await seen(running)
        assert (facts.contested, facts.version) == ("'twin'", f"homing {__version__}")
        assert 7_190 < facts.clock_jump < 7_210


async def test_where_there_is_none_nothing_is_read() -> None:
    async with running_broker() as running:
        await eventually(lambda: len(running.broker.retained) > 12)
        facts = await seen(running)
        assert (facts.contested, facts.clock_jump) == ("", 0)
        assert facts.version
