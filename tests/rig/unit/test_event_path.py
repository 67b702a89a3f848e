"""The bench of an event's whole way: what is published, and where NATS keeps it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from shutil import which

import pytest
from rich.console import Console

from app.mqtt.packets import decode_publish, packet_bounds
from homing_rig.bench.event_path import Turn, Way, nats, render
from homing_rig.bench.processes import Processes, Worker
from homing_rig.bench.publisher import events
from tests.waiting import eventually


def test_events_are_of_220_bytes_and_of_two_families() -> None:
    topics = set()
    for packet in events(100):
        bounds = packet_bounds(packet, 0)
        assert bounds is not None
        said = decode_publish(packet[0], packet[bounds[0] : bounds[1]], with_properties=False)
        assert (len(said.payload), said.packet_id > 0) == (220, True)
        assert json.loads(said.payload)["id"]
        topics.add(said.topic.split(b"/")[0])
    assert topics == {b"homing", b"thing"}


def test_a_way_without_a_node_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stored() -> int:
        return 0

    monkeypatch.setattr(Worker, "__init__", lambda _self: None)
    worker = Worker()  # type: ignore[call-arg] # it starts nothing here
    homing = Way("homing", worker, {"node": worker, "broker": worker}, stored)
    homing.turns.append(Turn(1000.0, {"node": 20.0, "broker": 10.0}))
    homing.turns.append(Turn(2000.0, {"node": 30.0, "broker": 10.0}))
    alone = Way("nats", worker, {"store": worker}, stored)
    alone.turns.append(Turn(9000.0, {"store": 15.0}))
    written = StringIO()
    Console(file=written, width=150).print(render([homing, alone]))
    assert "25.0" in written.getvalue()
    assert "2.50" in written.getvalue()
    assert "9,000" in written.getvalue()


@pytest.mark.skipif(which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin") is None, reason="no nats-server")
async def test_what_nats_acknowledges_is_in_its_stream(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    try:
        way = await nats(processes)
        await way.publisher.ask({"count": 1500})

        async def all_there() -> bool:
            return await way.stored() == 1500

        await eventually(all_there)
        await way.close()
    finally:
        await processes.stop()
