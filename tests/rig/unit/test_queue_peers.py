"""Servers that queues are compared with: one that is not installed is named, and the others are measured."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import NoReturn

import pytest

from homing_rig import peers
from homing_rig.figures.kit import Findings
from homing_rig.figures.queue_peers import start_peers
from homing_rig.programs import NotInstalledError


async def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, package: str) -> NoReturn:
        raise NotInstalledError(f"{name} is not installed (apt install {package})")

    monkeypatch.setattr(peers, "find_binary", missing)
    findings = Findings("A measurement.", lambda _line: None)
    async with AsyncExitStack() as stack:
        assert start_peers(findings, stack, 1000) == {}
    assert findings.entries == [
        "NATS JetStream is not compared: nats-server is not installed (apt install nats-server)",
        "RabbitMQ is not compared: rabbitmq-server is not installed (apt install rabbitmq-server)",
    ]
