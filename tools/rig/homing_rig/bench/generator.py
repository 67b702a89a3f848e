"""The load: keep-alive connections that each send one request after the other, and check every answer.

It shares the machine with what it measures, so it does no more than that: a small HTTP client on httptools takes
about a fifth of the CPU of a full one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httptools
import orjson

PATIENCE: Final = 60.0
"""Seconds without any answer after which a run is given up; what is under way then counts as an error."""

_OK: Final = 200
_ACCEPTED: Final = 202
_GATEWAY_TIMEOUT: Final = 504


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadJob:
    """The load to send. Ends after `commands`, or after `seconds`, whichever is given."""

    host: str
    port: int
    devices: Sequence[str]
    body: dict[str, Any]
    """The request; each gets a param `echo` of its own."""
    in_flight: int
    commands: int | None = None
    seconds: float | None = None
    patience: float = PATIENCE
    """Seconds after which a run without any answer is given up."""
    authorization: str = ""
    """The value of the header Authorization."""
    prefer: str = ""
    """The value of the header Prefer."""
    check: str = "outcome"
    """`outcome`: the device's answer to this very command; `accepted`: 202; `ok`: 200 with JSON."""


@dataclass(kw_only=True, slots=True)
class LoadResult:
    """The answers that came back. `wrong` are answers to another command, `lost` are commands whose deadline passed."""

    elapsed: float = 0.0
    """Seconds from the first request to the last answer."""
    completed: int = 0
    good: int = 0
    forwarded: int = 0
    wrong: int = 0
    lost: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    latencies: list[int] = field(default_factory=list)
    """Microseconds of each good answer."""

    @property
    def per_second(self) -> float:
        """Good answers per second."""
        return self.good / self.elapsed if self.elapsed else 0.0


async def run_load(job: LoadJob) -> LoadResult:
    """Send, check and count; OSError when the server cannot be reached at all."""
    run = _Run(job)
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: _Connection(run), job.host, job.port))[1] for _ in range(job.in_flight)
    ]
    run.begin()
    for connection in connections:
        connection.send_next()
    await run.finished()
    for connection in connections:
        connection.close()
    return run.result()


class _Run:
    """The state that the connections of one run share."""

    def __init__(self, job: LoadJob) -> None:
        self.job = job
        self.time = time.perf_counter  # the clock of uvloop moves in milliseconds
        self._head = (
            f" HTTP/1.1\r\nHost: {job.host}:{job.port}\r\nContent-Type: application/json\r\n".encode()
            + (f"Authorization: {job.authorization}\r\n".encode() if job.authorization else b"")
            + (f"Prefer: {job.prefer}\r\n".encode() if job.prefer else b"")
            + b"Content-Length: "
        )
        body = dict(job.body)
        params = dict(body.pop("params", {}))
        # `echo` is the last param and `params` the last field, so that a request is three pieces put together.
        self._body = orjson.dumps(body | {"params": params | {"echo": 0}}).removesuffix(b"0}}")
        self._paths = [f"POST /v1/devices/{device}/commands".encode() for device in job.devices]
        self._sent = 0
        self._under_way = 0
        self._started = 0.0
        self._last = 0.0
        self._stop_at = float("inf")
        self._idle = asyncio.Event()
        self._result = LoadResult()
        self._errors: Counter[str] = Counter()
        self._ids: set[str] = set()

    def begin(self) -> None:
        self._started = self._last = now = self.time()
        if self.job.seconds is not None:
            self._stop_at = now + self.job.seconds

    def next_request(self) -> tuple[int, bytes] | None:
        """The number and bytes of the next request; None when the run is over."""
        number = self._sent
        if number == self.job.commands or self.time() >= self._stop_at:
            return None
        self._sent += 1
        self._under_way += 1
        body = b"%b%d}}" % (self._body, number)
        return number, b"%b%b%d\r\n\r\n%b" % (self._paths[number % len(self._paths)], self._head, len(body), body)

    def answered(self, number: int, sent_at: float, status: int, body: bytes) -> None:
        self._under_way -= 1
        self._last = now = self.time()
        self._result.completed += 1
        if self._is_good(number, status, body):
            self._result.good += 1
            self._result.latencies.append(int((now - sent_at) * 1_000_000))

    def broken(self, reason: str) -> None:
        self._under_way -= 1
        self._errors[reason] += 1

    def connection_idle(self) -> None:
        if not self._under_way:
            self._idle.set()

    async def finished(self) -> None:
        """Return when the last answer is in, or when no more come."""
        while not self._idle.is_set():
            seen = self._last
            try:
                async with asyncio.timeout(self.job.patience):
                    await self._idle.wait()
            except TimeoutError:
                if self._last == seen:
                    self._errors["no_answer"] += self._under_way
                    return

    def result(self) -> LoadResult:
        self._result.elapsed = self._last - self._started
        self._result.errors = dict(self._errors)
        return self._result

    def _is_good(self, number: int, status: int, body: bytes) -> bool:
        answer: dict[str, Any] = orjson.loads(body) if body else {}
        if self.job.check == "ok":
            return self._expect(_OK, status)
        if self.job.check == "accepted":
            return self._expect(_ACCEPTED, status)
        if status == _GATEWAY_TIMEOUT:
            self._result.lost += 1
            return False
        return self._expect(_OK, status) and self._is_outcome_of(number, answer)

    def _expect(self, wanted: int, status: int) -> bool:
        if status != wanted:
            self._errors[f"status_{status}"] += 1
        return status == wanted

    def _is_outcome_of(self, number: int, answer: dict[str, Any]) -> bool:
        device = self.job.devices[number % len(self.job.devices)]
        if answer["state"] != "succeeded":
            self._errors[answer["state"]] += 1
            return False
        result = answer["result"]
        echoed = result.get("echo") if isinstance(result, dict) else None
        if answer["device_id"] != device or echoed != number or answer["id"] in self._ids:
            self._result.wrong += 1
            return False
        self._ids.add(answer["id"])
        self._result.forwarded += bool(answer["forwarded"])
        return True


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._number = 0
        self._sent_at = 0.0
        self._waiting = False
        self._chunks: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if self._waiting:
            self._waiting = False
            self._run.broken("connection_lost")
        self._run.connection_idle()

    def send_next(self) -> None:
        request = self._run.next_request() if self._transport is not None else None
        if request is None or self._transport is None:
            self._run.connection_idle()
            return
        self._number, data = request
        self._waiting = True
        self._sent_at = self._run.time()
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._waiting = False
            self._transport.abort()

    # httptools calls these

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        body = b"".join(self._chunks)
        self._chunks.clear()
        self._waiting = False
        self._run.answered(self._number, self._sent_at, self._parser.get_status_code(), body)
        self.send_next()
