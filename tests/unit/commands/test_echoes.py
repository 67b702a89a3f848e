"""Commands to devices that give no answers, and tell their state."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from app.commands.send.invoker import Invocation
from app.core.commands.command import CommandState
from app.core.errors import InvalidInputError
from app.core.messages import Publication
from app.core.profiles.correlation import Correlation
from app.mqtt.base import Subscription
from app.mqtt.loopback import LoopbackMqttClient
from app.store.holds import Claimed
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Assembly, assemble, request

BULB = """
name = "bulb"
description = ""

[request]
topic = "bulbs/{device_id}/set"
payload = "{params}"

[[response]]
name = "state"
topic = "bulbs/{device_id}"
correlation = "echo"
echo = [{ path = "state", equals = "{params.state}" }, { path = "level", equals = "{params.level}", tolerance = 2 }]
within = "5s"
result = "$"
rules = [{ state = "succeeded" }]
"""
KNOWN = 'no_op = "1h"\n'


async def bulbs(folder: Path, more: str = "") -> Assembly:
    (folder / "bulb.toml").write_text(BULB + more)
    assembly = await assemble(2, profiles_dir=folder)
    device = LoopbackMqttClient(assembly.broker, "bulb", Counter())
    await device.start([Subscription("bulbs/+/set")], lambda delivery: delivery.acknowledge())
    await device.wait_connected()
    return assembly


async def send(assembly: Assembly, **params: object) -> Invocation:
    wanted = request("set", device_id="bulb-1", profile="bulb", params=params, timeout=timedelta(seconds=60))
    return await assembly.members[0].invoker.invoke(wanted, park=True)


async def tell(assembly: Assembly, node: int = 1, device: str = "bulb-1", **state: object) -> None:
    """Have a node hear it, and wait until it is settled."""
    member = assembly.members[node]
    puback = member.client.publish(Publication(f"bulbs/{device}", json.dumps(state).encode()))
    await puback
    await member.invoker.drained()


async def test_the_state_that_was_asked_for_is_the_answer_and_is_marked_as_an_echo(tmp_path: Path) -> None:
    assembly = await bulbs(tmp_path)
    invocation = await send(assembly, state="ON", level=100)
    await tell(assembly, state="OFF", level=100)
    await tell(assembly, device="bulb-2", state="ON", level=100)
    await tell(assembly, state="ON", level=90)
    (open_one,) = await assembly.store.get([invocation.command.id])
    assert open_one is not None
    assert not open_one.state.final
    await tell(assembly, state="ON", level=101, battery=3)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, command.matched_by) == (CommandState.SUCCEEDED, Correlation.ECHO)
    assert json.loads(command.result or b"") == {"state": "ON", "level": 101, "battery": 3}


async def test_a_state_after_the_stated_time_answers_nothing(tmp_path: Path) -> None:
    assembly = await bulbs(tmp_path)
    invocation = await send(assembly, state="ON")
    assembly.clock.advance(5.001)
    await tell(assembly, state="ON")
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert not command.state.final


async def test_of_several_commands_each_gets_the_state_it_asked_for(tmp_path: Path) -> None:
    assembly = await bulbs(tmp_path)
    first, second = await send(assembly, level=10), await send(assembly, state="ON")
    await tell(assembly, state="ON", level=90)
    assert (await second.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED
    await tell(assembly, state="ON", level=10)
    assert (await first.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_what_is_so_already_counts_where_the_profile_says_so(tmp_path: Path) -> None:
    assembly = await bulbs(tmp_path, KNOWN)
    await tell(assembly, state="ON", level=50)
    command = await (await send(assembly, state="ON")).wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, command.matched_by) == (CommandState.SUCCEEDED, Correlation.ECHO)
    assert json.loads(command.result or b"") == {"state": "ON", "level": 50}


async def test_what_is_so_already_counts_for_a_command_that_was_held_as_well(tmp_path: Path) -> None:
    assembly = await bulbs(tmp_path, KNOWN)
    await tell(assembly, state="ON", level=50)
    member, hour = assembly.members[0], timedelta(hours=1)
    wanted = request("set", device_id="bulb-1", profile="bulb", params={"state": "ON"}, hold=hour)
    held = (await member.parts.holder.invoke(wanted, None, park=False)).command.id
    claimed = await assembly.store.claim(held, member.node_id, "token")
    assert isinstance(claimed, Claimed)
    member.open_commands.registered(member.open_commands.open(held), claimed.command)
    member.invoker._publisher.publish(claimed.command)  # as the claimant does
    await member.invoker.drained()
    (command,) = await assembly.store.get([held])
    assert command is not None
    assert (command.state, command.matched_by) == (CommandState.SUCCEEDED, Correlation.ECHO)


@pytest.mark.parametrize("why", ["another state", "too long ago", "not declared", "another bulb"])
async def test_else_it_waits_for_the_device(tmp_path: Path, why: str) -> None:
    assembly = await bulbs(tmp_path, "" if why == "not declared" else KNOWN)
    await tell(assembly, device="bulb-2" if why == "another bulb" else "bulb-1", state="ON")
    if why == "too long ago":
        assembly.clock.advance(3601)
    invocation = await send(assembly, state="OFF" if why == "another state" else "ON")
    await assembly.members[0].invoker.drained()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert not command.state.final


@pytest.mark.parametrize(
    ("method", "params", "sentence"),
    [
        (
            "set",
            {"transition": 1},
            r"answer to set by \{params.state\} or \{params.brightness\} or .* which this command",
        ),
        ("set", {}, r"needed: a value for one of them, or one_way: true"),
    ],
)
async def test_what_no_state_could_show_is_refused_with_a_whole_sentence(
    tmp_path: Path, method: str, params: dict[str, Any], sentence: str
) -> None:
    shipped = resources.files("app.profiles.shipped").joinpath("zigbee2mqtt.toml").read_text("utf-8")
    (tmp_path / "zigbee2mqtt.toml").write_text(shipped)
    assembly = await assemble(profiles_dir=tmp_path)
    with pytest.raises(InvalidInputError, match=sentence):
        await assembly.members[0].invoker.invoke(
            request(method, device_id="lamp", params=params, profile="zigbee2mqtt"), park=False
        )
