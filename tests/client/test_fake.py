"""The fake node answers as a node does, or says that it does not: no call of a client meets anything else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from homing_client import (
    NO_RETRY,
    ConflictError,
    HomingError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from homing_client.testing import FakeHoming
from tests.client.test_package import CALLS
from tests.client.twins import AnyHoming, Twin, close, done

FAKED = {
    "POST /v1/devices/{device_id}/commands",
    "GET /v1/devices/{device_id}/commands",
    "GET /v1/commands",
    "GET /v1/commands/{command_id}",
    "DELETE /v1/commands/{command_id}",
    "POST /v1/commands/{command_id}/probe",
    "GET /v1/commands/{command_id}/events",
    "GET /v1/nodes",
    "GET /v1/me",
    "GET /healthz",
    "GET /readyz",
}
"""The operations that the fake node has. `docs/client.md` names the rest as what it has not."""


@pytest.fixture
async def fake() -> AsyncIterator[FakeHoming]:
    with FakeHoming() as one:
        yield one


@pytest.fixture
async def homing(twin: Twin, fake: FakeHoming) -> AsyncIterator[AnyHoming]:
    one = twin(fake.url, retry=NO_RETRY)
    yield one
    await close(one)


@pytest.mark.parametrize("operation", sorted(CALLS))
async def test_every_call_is_answered_or_told_that_the_fake_does_not_do_it(
    homing: AnyHoming, fake: FakeHoming, operation: str
) -> None:
    try:
        await CALLS[operation](homing)
        refused = None
    except HomingError as error:
        refused = error
    unknown = getattr(refused, "type", "") == "urn:homing:problem:not-on-the-fake"
    assert (not unknown) == (operation in FAKED), refused
    if unknown:
        assert isinstance(refused, UnavailableError)
        method, _, path = fake.requests[-1].partition(" ")
        assert f"does not do {method} {path.partition('?')[0]}" in str(refused)
        assert operation.startswith(f"{method} ")


async def test_a_probe_finds_what_the_test_has_told(homing: AnyHoming, fake: FakeHoming) -> None:
    fake.on("dock-1", "open", state="timed_out")
    command = await done(homing.send, "dock-1", "open")
    with pytest.raises(InvalidInputError, match="has no probe for open"):
        await done(homing.probe, command.id)
    fake.tell("dock-1", "open", state=None)
    found = await done(homing.probe, command.id)
    assert (found["result"], found["command"]["verified"]) == ("not_so", None)
    fake.tell("dock-1", "open", {"data.cover": 1}, topic="dock-1/osd")
    found = await done(homing.probe, command.id)
    assert found["result"] == "goal"
    fake.tell("dock-1", "open", {"data.cover": 0}, state="failed")
    assert (await done(homing.probe, command.id))["command"] == found["command"]  # the first finding stays
    again = await done(homing.get, command.id)
    assert again.state == "timed_out"
    assert again.verified is not None
    assert again.verified.keys() == {"state", "kind", "topic", "at", "value", "found_at"}
    assert (again.verified["state"], again.verified["value"]) == ("succeeded", {"data.cover": 1})


async def test_a_probe_of_what_has_not_timed_out_or_is_not_there_is_refused(
    homing: AnyHoming, fake: FakeHoming
) -> None:
    fake.on("dock-1", "open", result=1)
    fake.tell("dock-1", "open", {})
    command = await done(homing.send, "dock-1", "open")
    with pytest.raises(ConflictError, match="succeeded needs no probe"):
        await done(homing.probe, command.id)
    with pytest.raises(NotFoundError):
        await done(homing.probe, "000-01J00000000000000000000099")
