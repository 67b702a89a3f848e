"""Many requests at a steady rate, from a process of its own: the one that times others does not wait for them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import cast

from homing_rig.figures.kit import FigureError, paced


@dataclass
class Spec:
    """Requests, with the port that each goes to. They are taken in turn."""

    requests: list[tuple[int, str]]
    rate: float
    seconds: float
    connections: int = 48
    """The connections to each port."""


@dataclass
class Flooded:
    """The answers to the requests of a flood."""

    statuses: Counter[str] = field(default_factory=Counter)
    admitted: list[int] = field(default_factory=list)
    """Answers of 2xx, by second."""
    seconds: float = 0.0


class Connection(asyncio.Protocol):
    """One request at a time, over a connection that is kept."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - see asyncio.Protocol
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102 - see asyncio.Protocol
        if not self._answered.done():
            self._answered.set_exception(exc or ConnectionResetError("the node has hung up"))

    def data_received(self, data: bytes) -> None:  # noqa: D102 - see asyncio.Protocol
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        _, found, length = head.lower().partition(b"content-length: ")
        if end and len(body) >= (int(length.split(b"\r\n", 1)[0]) if found else 0):
            self._buffer = b""
            self._answered.set_result(int(head[9:12]))

    async def ask(self, request: bytes) -> int:
        """The status of the answer."""
        if self._transport is None:
            raise FigureError("there is no connection yet")
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answered


async def run(spec: Spec) -> Flooded:
    """Send all of it; a connection sends at once what it could not send in time."""
    found = Flooded(admitted=[0] * (int(spec.seconds) + 60))
    requests = [(port, text.encode("latin-1")) for port, text in spec.requests]
    free: dict[int, asyncio.Queue[Connection]] = {port: asyncio.Queue() for port, _ in requests}
    for port, queue in free.items():
        for _ in range(spec.connections):
            _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
            queue.put_nowait(connection)
    began = perf_counter()

    async def send(port: int, request: bytes) -> None:
        connection = await free[port].get()
        status = await connection.ask(request)
        free[port].put_nowait(connection)
        found.statuses[str(status)] += 1
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            found.admitted[int(perf_counter() - began)] += 1

    async with asyncio.TaskGroup() as group:
        async for number in paced(spec.rate, round(spec.rate * spec.seconds)):
            group.create_task(send(*requests[number % len(requests)]))
    found.seconds = perf_counter() - began
    return found


async def flood(spec: Spec) -> Flooded:
    """Send all of it from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __spec__.name), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(json.dumps(vars(spec)).encode())
    if process.returncode:
        raise FigureError("the process that sends has failed")
    told = json.loads(out)
    return Flooded(Counter(told["statuses"]), told["admitted"], told["seconds"])


def request(method: str, path: str, headers: Sequence[str], content: object = None) -> str:
    """A request as it goes over the wire, with this content as JSON."""
    body = "" if content is None else json.dumps(content)
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []
    return "\r\n".join([*lines, "", body])


def main() -> None:
    """Read a Spec as JSON, send it, and write a Flooded."""
    spec = json.load(sys.stdin)
    spec["requests"] = [(port, text) for port, text in spec["requests"]]
    sys.stdout.write(json.dumps(vars(asyncio.run(run(Spec(**spec))))))


if __name__ == "__main__":
    main()
