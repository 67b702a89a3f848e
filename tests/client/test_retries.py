"""The tries of a client: when it tries again, and how often at most."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from random import Random

import pytest

from homing_client import (
    NO_RETRY,
    AsyncHoming,
    Homing,
    LimitError,
    Reply,
    Retry,
    ServerEvent,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from homing_client._retry import Attempts, Budget, pause, worth_trying_again
from homing_client._wire import Request
from homing_client.testing import FakeHoming
from tests.client.conftest import Open
from tests.client.twins import done

SOON = Retry(first=timedelta(milliseconds=1))
SEND = Request("POST", "/v1/devices/{device_id}/commands", path={"device_id": "d"})
MAKE_KEY = Request("POST", "/v1/keys", repeatable=False)


@pytest.fixture
def fake() -> Iterator[FakeHoming]:
    with FakeHoming() as one:
        one.on("dock-1", "cover_open", result={"angle": 90})
        yield one


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_busy_moment_is_not_seen(fake: FakeHoming, open_homing: Open, status: int) -> None:
    fake.refuse(status, times=2)
    homing = open_homing(fake.url, retry=SOON)
    command = await done(homing.call, "dock-1", "cover_open")
    assert command.result == {"angle": 90}
    assert len(fake.requests) == 3
    assert len(fake.commands) == 1


async def test_what_stays_away_is_an_error(fake: FakeHoming, open_homing: Open) -> None:
    fake.refuse(503, times=9)
    homing = open_homing(fake.url, retry=SOON)
    with pytest.raises(UnavailableError):
        await done(homing.nodes)
    assert len(fake.requests) == SOON.attempts
    fake.refuse(429)
    with pytest.raises(UnavailableError):
        await done(open_homing(fake.url, retry=NO_RETRY).nodes)


async def test_a_retry_is_the_same_command(fake: FakeHoming, open_homing: Open) -> None:
    fake.lose_answers(2)
    command = await done(open_homing(fake.url, retry=SOON).call, "dock-1", "cover_open")
    assert command.result == {"angle": 90}
    assert len(fake.requests) == 3
    assert len(fake.commands) == 1


async def test_what_may_not_be_done_twice_is_not_sent_again(fake: FakeHoming, open_homing: Open) -> None:
    fake.on("dock-1", "fly", state="pending")
    homing = open_homing(fake.url, retry=SOON)
    sent = await done(homing.send, "dock-1", "fly", wait=False)
    fake.lose_answers()
    with pytest.raises(UnreachableError) as lost:
        await done(homing.cancel, sent.id)
    assert lost.value.sent
    assert (await done(homing.get, sent.id)).state == "cancelled"


async def test_of_several_nodes_one_is_enough(fake: FakeHoming, open_homing: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    homing = open_homing(f"{away},{fake.url}", retry=SOON)
    assert (await done(homing.call, "dock-1", "cover_open")).succeeded
    assert homing.url == fake.url


async def test_all_who_find_a_node_gone_go_to_the_next_one_at_once_and_stay(fake: FakeHoming) -> None:
    """Their number is even, so that turns of each would lead back to the one that is away; no retry is spent."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    never = Retry(first=timedelta(days=1), share=0, burst=0)
    async with AsyncHoming(f"{away},{fake.url}", retry=never) as homing:
        assert all(one.open for one in await asyncio.gather(*(homing.me() for _ in range(50))))
        assert homing.url == fake.url
    async with AsyncHoming(f"{away},{away}", retry=never) as homing:
        with pytest.raises(UnreachableError):
            await homing.me()


def test_retries_are_saved_up_for_when_a_node_dies() -> None:
    budget = Budget(0.5, 2)
    for _ in range(100):
        budget.deposit()
    assert sum(budget.withdraw() for _ in range(100)) == 20


async def test_nobody_there_is_an_error_of_ours(open_homing: Open) -> None:
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1 cannot be reached: Connection refused") as away:
        await done(open_homing("http://127.0.0.1:1", retry=SOON).nodes)
    assert not away.value.sent


def test_our_own_deadline_is_no_reason_to_try_again() -> None:
    ours = Reply(504, {"content-type": "application/problem+json"}, b'{"type": "urn:homing:problem:timed-out"}')
    of_a_proxy = Reply(504, {"content-type": "text/html"}, b"<html>")
    assert not worth_trying_again(SEND, ours)
    assert worth_trying_again(SEND, of_a_proxy)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_a_no_stays_a_no(status: int) -> None:
    assert not worth_trying_again(SEND, Reply(status, {}, b""))


def test_what_was_never_sent_may_be_sent() -> None:
    def again(ended: Reply | UnreachableError) -> bool:
        return Attempts(MAKE_KEY, Retry(), Budget(0.2, 10), lambda: 0.5).again(ended) is not None

    assert again(UnreachableError("", sent=False))
    assert again(Reply(429, {}, b""))
    assert not again(UnreachableError("", sent=True))
    assert not again(Reply(503, {}, b""))


def test_pauses_grow_are_random_and_obey() -> None:
    retry = Retry(first=timedelta(seconds=1), most=timedelta(seconds=5))
    assert [pause(retry, attempt, None, lambda: 1.0) for attempt in (1, 2, 3, 4)] == [1, 2, 4, 5]
    assert pause(retry, 3, None, lambda: 0.25) == 1
    assert pause(retry, 5_000, None, lambda: 1.0) == 5  # of a program that never gives up
    assert pause(retry, 1, 2.0, lambda: 0.0) == 2
    assert pause(retry, 1, 6.0, lambda: 0.0) is None


class HalfBroken:
    """A transport that fails half of all requests."""

    def __init__(self) -> None:
        self.random = Random(7)
        self.count = Counter[str]()

    def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        good = self.random.random() < 0.5
        self.count["good" if good else "bad"] += 1
        if not good:
            return Reply(503, {"retry-after": "0"}, b"")
        return Reply(200, {"content-type": "application/json"}, b'{"open": true}')

    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractContextManager[tuple[Reply, Iterator[ServerEvent]]]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def test_F74_clients_do_not_bring_down_what_struggles() -> None:
    transport = HalfBroken()
    failed = 0
    with Homing("http://node", retry=Retry(first=timedelta()), transport=transport) as homing:
        for _ in range(2000):
            try:
                homing.me()
            except UnavailableError:
                failed += 1
    assert transport.count.total() <= 1.2 * 2000
    assert failed < 0.45 * 2000  # so the budget was used


async def test_what_is_no_node_is_told_from_one(open_homing: Open) -> None:
    class Other(HalfBroken):
        def exchange(self, *_: object, **__: object) -> Reply:
            return Reply(200, {"content-type": "text/html"}, b"<html>")

    with (
        Homing("http://node", transport=Other()) as homing,
        pytest.raises(UnexpectedAnswerError, match="no Homing node"),
    ):
        homing.me()


async def test_a_node_may_ask_for_too_long_a_pause(fake: FakeHoming, open_homing: Open) -> None:
    fake.refuse(429, headers={"Retry-After": "3600"})
    with pytest.raises(LimitError) as limited:
        await done(open_homing(fake.url).nodes)
    assert limited.value.retry_after == 3600


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_client_outlives_the_event_loop_that_it_was_used_on(fake: FakeHoming) -> None:
    homing = AsyncHoming(fake.url)
    for _ in range(3):  # each time on a loop of its own, as programs do that block otherwise
        assert asyncio.run(homing.call("dock-1", "cover_open")).result == {"angle": 90}
    asyncio.run(homing.aclose())
    gc.collect()  # the connections of the loops, which nobody could close, are gone within this test
