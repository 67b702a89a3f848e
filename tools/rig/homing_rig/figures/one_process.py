"""Measures what `homing up` does besides keeping messages: fan-out, catching up, commands, and starts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.broker.codes import PacketType
from app.core.broker.packets import Publish, PublishAck
from homing_rig.figures.box_backup import beside_backup
from homing_rig.figures.broker import PAYLOAD, PlainClient, SmallBox, cpu_seconds, one_turn
from homing_rig.figures.full_box import AT_ONCE, HEARD, ONE_WAY, answered, by_turns, command_request, listen
from homing_rig.figures.kit import FigureError, Findings, p99
from homing_rig.patience import PATIENCE
from homing_rig.services import MosquittoProcess

FAN_MESSAGES: Final = 30
WINDOW: Final = 500
HOUR: Final = 3600

_Sides = Mapping[str, tuple[int, int]]
"""Ports and process ids of brokers, by their names."""


async def one_process(
    findings: Findings,
    *,
    readers: Annotated[int, Option(min=1, help="The number of clients that get each message of the fan-out.")] = 1000,
    messages: Annotated[int, Option(min=1, help="The number of messages that a client has missed.")] = 50_000,
    commands: Annotated[int, Option(min=1, help="The number of commands, one at a time and then many at once.")] = 1000,
    seconds: Annotated[float, Option(min=0.5, help="The length of a turn with messages that nobody keeps.")] = 5.0,
    backup: Annotated[int, Option(min=0, help="The MiB that a backup copies; with 0 there is none.")] = 0,
    rate: Annotated[int, Option(min=1, help="The messages of QoS 1 a second beside the backup.")] = 2000,
) -> None:
    """Messages that nobody keeps, and fan-out, beside Mosquitto; catching up, commands and starts of one process."""
    with MosquittoProcess() as mosquitto, ExitStack() as stack:
        began = perf_counter()
        box = stack.enter_context(SmallBox())
        sides = {"homing": (box.mqtt_port, box.pid), "mosquitto": (mosquitto.port, mosquitto.pid)}
        await _first_command(box)
        findings.figure("first start to the first command that is answered", perf_counter() - began, " s", most=2)
        await _unkept(findings, sides, seconds)
        await _fan_out(findings, sides, readers)
        findings.figure("catching up", await _catch_up(box.mqtt_port, messages), "/s", least=20_000)
        await _commands(findings, box, commands)
        box.kill()
        began = perf_counter()
        box.start()
        await _first_command(box)
        name = f"start after a kill, with {2 * commands:,} commands, to the first one that is answered"
        findings.figure(name, perf_counter() - began, " s", most=6)
        if backup:
            await beside_backup(findings, box, backup, rate, seconds)


async def _unkept(findings: Findings, sides: _Sides, seconds: float) -> None:
    costs = {name: (await one_turn(port, pid, seconds, expiry=0))[0] for name, (port, pid) in sides.items()}
    for name, cost in costs.items():
        findings.figure(f"CPU per message that nobody keeps, {name}", cost, " µs")
    findings.figure("the first to the second", costs["homing"] / costs["mosquitto"], " ×", most=1.5)


async def _fan_out(findings: Findings, sides: _Sides, readers: int) -> None:
    costs = {name: await _delivery(port, pid, readers) for name, (port, pid) in sides.items()}
    findings.figure("CPU per delivery of the fan-out, homing", costs["homing"], " µs", most=3)
    findings.figure("CPU per delivery of the fan-out, mosquitto", costs["mosquitto"], " µs")
    findings.figure("the first to the second, of the fan-out", costs["homing"] / costs["mosquitto"], " ×", most=2)


async def _delivery(port: int, pid: int, readers: int) -> float:
    """Return the microseconds of CPU for each delivery of QoS 0, where each message has so many."""
    clients = [await _subscribed(port, f"fan-{number}", "figures/fan", 0) for number in range(readers)]
    talker, heard = await PlainClient.connect(port, "fan-talker"), 0
    try:
        before = cpu_seconds(pid)
        async with asyncio.timeout(5 * PATIENCE):
            for _ in range(FAN_MESSAGES):
                talker.write(Publish("figures/fan", PAYLOAD, 0))
                for one in clients:  # each message is there for all before the next: nobody is a slow reader
                    await one.read()
                    heard += 1
        return (cpu_seconds(pid) - before) / heard * 1e6
    except TimeoutError:
        raise FigureError(f"of {FAN_MESSAGES * readers} messages of the fan-out, {heard} have come") from None
    finally:
        for client in (*clients, talker):
            client.close()


async def _catch_up(port: int, messages: int) -> float:
    """Return how many messages a second a client gets that it has missed."""
    (await _subscribed(port, "late", "late", 1, expiry=HOUR)).close()
    talker = await PlainClient.connect(port, "late-talker")
    for begin in range(0, messages, WINDOW):
        left = min(WINDOW, messages - begin)
        talker.write(*(Publish("late", PAYLOAD, 1, packet_id=one) for one in range(1, left + 1)))
        while left:
            left -= sum(isinstance(one, PublishAck) for one in await talker.read())
    talker.close()
    began, heard = perf_counter(), 0
    late = await PlainClient.connect(port, "late", clean=False)
    while heard < messages:
        said = [one for one in await late.read() if isinstance(one, Publish)]
        heard += len(said)
        late.write(*(PublishAck(PacketType.PUBACK, one.packet_id) for one in said))
    late.close()
    return messages / (perf_counter() - began)


async def _commands(findings: Findings, box: SmallBox, commands: int) -> None:
    device = await _subscribed(box.mqtt_port, "silent-device", HEARD, 0)
    listening = asyncio.create_task(listen(device))
    try:
        alone = await _send(box, commands)
        findings.spread("a one-way command, one at a time", [one * 1000 for one in alone], " ms", most=3)
        findings.figure("p99 of that", p99(alone) * 1000, " ms")
        began = perf_counter()
        await by_turns(lambda _: _send(box, max(1, commands // AT_ONCE)), AT_ONCE)
        rate = AT_ONCE * max(1, commands // AT_ONCE) / (perf_counter() - began)
        findings.figure(f"one-way commands a second, {AT_ONCE} at once", rate, "/s", least=1500)
    finally:
        listening.cancel()
        device.close()


async def _first_command(box: SmallBox) -> None:
    device = await _subscribed(box.mqtt_port, "silent-device", HEARD, 0)
    await _send(box, 1)
    device.close()


async def _send(box: SmallBox, count: int) -> list[float]:
    """Send so many commands over one connection, and return the seconds that each took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
    found = []
    for _ in range(count):
        began = perf_counter()
        writer.write(command_request("wait=60", ONE_WAY))
        await answered(reader, b" 200 ")
        found.append(perf_counter() - began)
    writer.close()
    return found


async def _subscribed(port: int, client_id: str, topic: str, qos: int, *, expiry: int = 0) -> PlainClient:
    client = await PlainClient.connect(port, client_id, expiry=expiry)
    await client.subscribe(topic, qos)
    return client
