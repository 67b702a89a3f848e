"""Commands by a client, as people use it, on a real node and on the fake one, in both twins."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from app.core.commands.command import CommandState
from app.runtime.system import SystemClock
from homing_client import (
    NO_RETRY,
    CancelledError,
    CommandCancelledError,
    ConflictError,
    DeviceRefusedError,
    Fault,
    Homing,
    HomingError,
    InvalidInputError,
    NotFoundError,
    NotSentError,
    State,
    TimedOutError,
)
from homing_client.testing import FakeHoming
from tests.client.conftest import Place
from tests.client.twins import AnyHoming, all_of, done

NOBODY = "000-01J00000000000000000000099"


async def test_a_command_comes_back_with_its_outcome(homing: AnyHoming, place: Place) -> None:
    command = await done(homing.send, place.device, "ok", {"n": 1}, timeout=timedelta(seconds=30))
    assert command.succeeded
    assert (command.device_id, command.method, command.params) == (place.device, "ok", {"n": 1})
    assert command.result == {"height": 20.5, "serial": 18446744073709551615}
    assert command.created_at <= command.finished_at
    assert command.raw["id"] == command.id
    again = await done(homing.get, command.id)
    assert again == command


async def test_outcomes_are_values_of_send_and_errors_of_call(homing: AnyHoming, place: Place) -> None:
    refused = await done(homing.send, place.device, "refuse")
    assert (refused.state, refused.error.code, refused.error.message) == ("failed", 42, "no GPS")
    assert refused.error.code_text == "42"
    silent = await done(homing.send, place.device, "silent", timeout="50ms")
    assert (silent.state, silent.error.code) == ("timed_out", "timed_out")
    nobody = await done(homing.send, "drone-9", "cover_open", profile="dji", if_offline="fail")
    assert (nobody.state, nobody.error.code) == ("unsent", "no_subscriber")

    assert (await done(homing.call, place.device, "ok")).succeeded
    with pytest.raises(DeviceRefusedError, match="no GPS") as failed:
        await done(homing.call, place.device, "refuse")
    assert failed.value.command.error is not None
    assert failed.value.command.error.code == 42
    assert failed.value.command_id == failed.value.command.id
    with pytest.raises(TimedOutError):
        await done(homing.call, place.device, "silent", timeout="50ms")
    with pytest.raises(NotSentError):
        await done(homing.call, "drone-9", "cover_open", profile="dji", if_offline="fail")


async def test_what_is_held_comes_back_at_once(homing: AnyHoming, place: Place) -> None:
    held = await done(homing.send, "drone-9", "cover_open", profile="dji", hold=timedelta(hours=8))
    assert (held.state, held.is_final) == ("held", False)
    device = homing.device("drone-9", profile="dji")
    at = datetime.fromtimestamp(SystemClock().wall() + 3600, UTC)
    later = await done(device.send, "cover_open", hold="8h", not_before=at)
    assert later.state == "held"
    if "hold" in later.raw:  # the fake one has no instants
        assert abs(datetime.fromisoformat(later.raw["hold"]["not_before"]) - at) <= timedelta(milliseconds=1)
    assert (await done(homing.cancel, held.id)).state == "cancelled"


async def test_a_newer_one_takes_the_place_of_what_waits_with_its_key(homing: AnyHoming, place: Place) -> None:
    device = homing.device("drone-9", profile="dji")
    first = await done(device.send, "cover_open", hold="8h", replaces="cover")
    other = await done(device.send, "cover_open", hold="8h", replaces="lamp")
    second = await done(homing.send, "drone-9", "cover_close", profile="dji", hold="8h", replaces="cover")
    assert second.raw["hold"]["replaces"] == "cover"
    found = await done(homing.get, first.id)
    assert (found.state, found.error and found.error.code) == ("cancelled", "superseded")
    assert [(await done(homing.get, one.id)).state for one in (other, second)] == ["held", "held"]


async def test_the_same_key_is_the_same_command(homing: AnyHoming, place: Place) -> None:
    first = await done(homing.send, place.device, "ok", idempotency_key="k1")
    second = await done(homing.send, place.device, "ok", idempotency_key="k1")
    other = await done(homing.send, place.device, "ok")
    assert first.id == second.id != other.id


async def test_a_key_that_a_script_forgot_to_set_is_told_and_not_made_up(homing: AnyHoming, place: Place) -> None:
    with pytest.raises(InvalidInputError, match="idempotency_key: is empty"):
        await done(homing.send, place.device, "ok", idempotency_key="")


async def test_a_device_is_talked_to_by_name(homing: AnyHoming, place: Place) -> None:
    device = homing.device(place.device, profile="homing")
    command = await done(device.call, "ok")
    assert (command.device_id, command.profile) == (place.device, "homing")
    assert [one.id for one in await all_of(device.commands)] == [command.id]


async def test_commands_are_listed_over_pages_newest_first(homing: AnyHoming, place: Place) -> None:
    sent = [(await done(homing.send, place.device, method)).id for method in ("ok", "refuse", "ok", "ok", "refuse")]
    assert [one.id for one in await all_of(homing.commands, page_size=2)] == sent[::-1]
    failed = await all_of(homing.commands, state="failed", device=place.device, page_size=1)
    assert [one.id for one in failed] == [sent[4], sent[1]]
    assert [one.id for one in await all_of(homing.commands_of, place.device, page_size=2, most=3)] == sent[:1:-1]
    assert await all_of(homing.commands_of, "drone-9") == []


async def test_what_cannot_be_is_an_error_with_all_that_the_node_said(homing: AnyHoming, place: Place) -> None:
    with pytest.raises(NotFoundError) as unknown:
        await done(homing.get, NOBODY)
    assert unknown.value.type == "urn:homing:problem:command-not-found"
    assert (unknown.value.status, unknown.value.command_id) == (404, NOBODY)
    assert NOBODY in str(unknown.value)
    finished = await done(homing.send, place.device, "ok")
    with pytest.raises(ConflictError):
        await done(homing.cancel, finished.id)
    with pytest.raises(NotFoundError):
        await done(homing.cancel, NOBODY)
    with pytest.raises(InvalidInputError) as wrong:
        await done(homing.send, place.device, None)
    assert wrong.value.problem["errors"][0]["field"] == "method"


async def test_the_cluster_and_the_caller_are_told_of(homing: AnyHoming) -> None:
    cluster = await done(homing.nodes)
    assert [one.is_self for one in cluster.nodes] == [True]
    assert cluster.answered_by["state"] == "ready"
    assert (await done(homing.me)).open
    assert (await done(homing.ready)).ready


def test_the_states_of_a_command_are_those_that_nodes_have() -> None:
    assert set(get_args(State)) == set(CommandState)


def test_an_error_is_named_otherwise_than_that_of_asyncio() -> None:
    assert issubclass(CommandCancelledError, HomingError)
    assert CancelledError is CommandCancelledError
    assert CommandCancelledError.__name__ not in dir(asyncio)


@pytest.mark.parametrize(("code", "text"), [(319001, "319001"), ("busy", "busy"), (None, ""), ([1], "[1]")])
def test_a_code_is_text_also_from_a_node_that_does_not_say_so(code: object, text: str) -> None:
    found = Fault.of({"code": code, "message": "no"})
    assert found is not None
    assert (found.code, found.code_text) == (code, text)


def test_the_fake_node_says_what_it_was_not_given() -> None:
    with FakeHoming() as fake, Homing(fake.url, retry=NO_RETRY) as homing:
        fake.on("dock-1", "cover_open")
        with pytest.raises(TimedOutError, match=r"nothing was given for dock-1/nope: fake.on\('dock-1', 'nope', …\)"):
            homing.call("dock-1", "nope")
        with pytest.raises(NotSentError, match="nothing was given for dock-2/cover_open"):
            homing.call("dock-2", "cover_open")
