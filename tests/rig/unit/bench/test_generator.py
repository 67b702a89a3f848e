"""The load generator against a server that answers as told: it must notice every answer that is not right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from homing_rig.bench.generator import LoadJob, LoadResult, run_load
from tests.tcp import listening
from tests.waiting import PATIENCE

Answer = Callable[[int, dict[str, Any], str], bytes | None]
"""From the number of the request, its body and its head to what goes over the wire; None hangs up."""


def response(status: int, body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data)


def outcome(number: int, body: dict[str, Any], head: str, **changes: Any) -> bytes:
    command = {
        "id": f"id-{number}",
        "device_id": head.split("/")[3],
        "state": "succeeded",
        "result": {"echo": body["params"]["echo"]},
        "forwarded": bool(number % 2),
    }
    return response(200, command | changes)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
            body = json.loads(await reader.readexactly(size))
            count += 1
            reply = answer(count - 1, body, head)
            if reply is None:
                break
            writer.write(reply)

    async with listening(serve) as port:
        yield port


async def load(answer: Answer, **changes: Any) -> LoadResult:
    async with server(answer) as port:
        job: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "devices": ["D1", "D2", "D3"],
            "body": {"method": "photo", "params": {"zoom": 2}, "timeout": "10s"},
            "in_flight": 4,
            "commands": 20,
        }
        return await asyncio.wait_for(run_load(LoadJob(**(job | changes))), PATIENCE)


async def test_good_answers_are_counted_and_timed() -> None:
    result = await load(outcome)
    assert (result.completed, result.good, result.forwarded) == (20, 20, 10)
    assert (result.wrong, result.lost, result.errors) == (0, 0, {})
    assert len(result.latencies) == 20
    assert all(latency > 0 for latency in result.latencies)
    assert result.elapsed > 0


async def test_requests_go_round_the_devices_with_a_number_each() -> None:
    seen = []

    def note(number: int, body: dict[str, Any], head: str) -> bytes:
        seen.append((head.split("/")[3], body))
        return outcome(number, body, head)

    await load(note, in_flight=1, commands=4)
    assert [device for device, _ in seen] == ["D1", "D2", "D3", "D1"]
    expected = {"method": "photo", "timeout": "10s"}
    assert [body for _, body in seen] == [expected | {"params": {"zoom": 2, "echo": n}} for n in range(4)]


@pytest.mark.parametrize(
    "changes", [{"result": {"echo": -1}}, {"result": None}, {"device_id": "other"}, {"id": "the-same-again"}]
)
async def test_an_answer_to_another_command_is_wrong(changes: dict[str, Any]) -> None:
    result = await load(lambda number, body, head: outcome(number, body, head, **changes))
    # The first answer with an id that comes again cannot be known to be wrong.
    assert (result.good, result.wrong) == ((1, 19) if "id" in changes else (0, 20))


async def test_a_deadline_that_passed_is_a_loss() -> None:
    result = await load(lambda *_: response(504, {"title": "timed out"}))
    assert (result.completed, result.good, result.lost, result.errors) == (20, 0, 20, {})


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (lambda *_: response(503, {}), "status_503"),
        (lambda number, body, head: outcome(number, body, head, state="failed"), "failed"),
    ],
)
async def test_other_ends_are_errors_by_name(answer: Answer, name: str) -> None:
    result = await load(answer)
    assert (result.good, result.errors) == (0, {name: 20})


async def test_a_connection_that_breaks_is_an_error_and_the_others_go_on() -> None:
    result = await load(lambda number, body, head: None if number == 2 else outcome(number, body, head))
    assert result.errors == {"connection_lost": 1}
    assert result.good == 19


async def test_a_server_that_hangs_up_on_everybody_ends_the_run() -> None:
    result = await load(lambda *_: None)
    assert (result.good, result.errors) == (0, {"connection_lost": 4})


async def test_a_run_without_answers_is_given_up() -> None:
    result = await load(lambda *_: b"", patience=0.05)
    assert (result.good, result.errors) == (0, {"no_answer": 4})


async def test_a_run_ends_after_its_seconds() -> None:
    result = await load(outcome, commands=None, seconds=0.5)
    assert result.good > 4
    assert result.elapsed > 0.4


async def test_accepted_means_202_and_says_what_was_preferred() -> None:
    def accept(_number: int, _body: dict[str, Any], head: str) -> bytes:
        return response(202 if "Prefer: respond-async\r\n" in head else 400, {})

    result = await load(accept, check="accepted", prefer="respond-async")
    assert (result.good, result.errors) == (20, {})
    assert (await load(outcome, check="accepted")).errors == {"status_200": 20}


async def test_nobody_there_is_said_at_once() -> None:
    async with server(outcome) as port:
        pass
    job = LoadJob(host="127.0.0.1", port=port, devices=["D"], body={}, in_flight=1, commands=1)
    with pytest.raises(OSError, match=str(port)):
        await run_load(job)
