"""A place to send to: a real node behind a socket, or the fake one that users get for their tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from homing_client import NO_RETRY
from homing_client.testing import FakeHoming
from tests.api.rig import DEVICE, running
from tests.api.serving import serving
from tests.client.twins import TWINS, AnyHoming, Twin, close


@dataclass(frozen=True)
class Place:
    """`device` obeys the methods `ok`, `refuse` and is silent to `silent`; nobody listens for any other device."""

    url: str
    device: str = DEVICE


@pytest.fixture(autouse=True)
def own_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(params=TWINS, ids=["async", "sync"])
def twin(request: pytest.FixtureRequest) -> Twin:
    made: Twin = request.param
    return made


@pytest.fixture(params=["node", "fake"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "node":
        async with running() as rig, serving(rig) as served:
            yield Place(f"http://127.0.0.1:{served.port}")
        return
    with FakeHoming() as fake:
        fake.on(DEVICE, "ok", result={"height": 20.5, "serial": 18446744073709551615})
        fake.on(DEVICE, "refuse", error=(42, "no GPS"))
        fake.on(DEVICE, "silent", state="timed_out")
        yield Place(fake.url)


@pytest.fixture
async def homing(twin: Twin, place: Place) -> AsyncIterator[AnyHoming]:
    one = twin(place.url, retry=NO_RETRY)
    yield one
    await close(one)


Open = Callable[..., AnyHoming]


@pytest.fixture
async def open_homing(twin: Twin) -> AsyncIterator[Open]:
    """Make clients that are closed at the end."""
    made: list[AnyHoming] = []

    def make(*arguments: object, **named: object) -> AnyHoming:
        made.append(twin(*arguments, **named))
        return made[-1]

    yield make
    for one in made:
        await close(one)
